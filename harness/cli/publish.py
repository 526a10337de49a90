"""`fmha publish`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness import archive
from fmha.harness.cli.common_options import Json, Results, archive_folder
from fmha.harness.cli.output import print_json, say
from fmha.harness.cli.report import against_baseline, page_of
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.trends import modelled_times
from fmha.harness.trends.ancestry import ordered
from fmha.harness.trends.baselines import baselines
from fmha.harness.trends.extract import RunFacts, facts
from fmha.harness.trends.gpu_outliers import gpus
from fmha.harness.trends.series import trends
from fmha.harness.trends.site import Content, write

HELP = """Write the archive as a site: every figure over commits, what changed with which, a page a commit.

The pages need no network and no server: open index.html, or put the folder behind any web server or on GitHub Pages.
Commits are in the order of ancestry. Steps are found by a test and shown with how sure they are; docs/use/trends.md
says how. FOLDER may have an earlier site: what is as it was is left alone. Addresses stay. badge.svg is the newest
verdict.

\b
Examples:
  fmha publish site
  fmha publish site --results /archive/results --json
"""


def command(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the site goes; made where it is not there.")],
    results: Results = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, folder, results, json)


def _run(folder: Path, results: Path | None, json: bool) -> ExitCode:
    source = archive_folder(results)
    runs, unreadable = facts(source)
    times, wrong = modelled_times.kept(source)
    unreadable |= wrong
    for name, error in unreadable.items():
        print(f"fmha: {name}: {error}; skipped", file=sys.stderr)
    if not runs:
        raise UserError("there is no run to publish", where=str(source), next_step="fmha run-matrix makes one")
    _check(folder)
    first: dict[str, str] = {}
    for run in runs:
        first.setdefault(run.sha, run.started)
    for item in times:
        first.setdefault(item.sha, item.recorded)
    found = trends(runs, ordered(Path.cwd(), first), times)
    within = {item.line: item.within for item in times}
    against = _against(runs, found.commits[-1].sha, source)
    content = Content(found, baselines(source), gpus(runs), unreadable, _latest(runs, source), within, against)
    made = write(folder, content)
    worse = sum(change.worse for change in found.changes)
    if json:
        skipped = [{"name": name, "error": error} for name, error in unreadable.items()]
        counts = {"runs": len(runs), "commits": len(found.commits), "changes": len(found.changes), "worse": worse}
        fields = {"folder": str(folder), "files": made.files, "changed": made.changed, "bytes": made.size}
        print_json("publish", 1, fields | counts | {"unreadable": skipped})
        return ExitCode.PASS
    say(f"{len(runs)} runs of {len(found.commits)} commits: {len(found.changes)} changes, {worse} for the worse")
    say(f"wrote {made.changed} of {made.files} files, {made.size / 1e6:.1f} MB in all: {folder / 'index.html'}")
    return ExitCode.PASS


def _check(folder: Path) -> None:
    """A folder with something else in it is not ours to fill."""
    if folder.exists() and not folder.is_dir():
        raise UserError("is no folder", where=str(folder))
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "data" / "index.js").is_file():
        others = [path.name for path in folder.iterdir() if path.name not in (".git", "CNAME", "README.md")]
        if others:
            raise UserError("has something else than a site in it", where=str(folder), next_step="name an empty folder")


def _against(runs: Sequence[RunFacts], newest: str, source: Path) -> dict[str, str]:
    """What is worse than in the baseline, of the newest run and of the newest one of the newest commit, by the run."""
    looked_at = {run.name for run in (runs[-1], *[run for run in runs if run.sha == newest][-1:])}
    told = {name: against_baseline(archive.find(str(source / name), source, Path.cwd()), source) for name in looked_at}
    return {name: text for name, text in told.items() if text}


def _latest(runs: Sequence[RunFacts], source: Path) -> str:
    """The report of the newest run. Its histories come from what the trends know already: the archive's index would
    read every record once more."""
    newest = runs[-1]

    def history(configuration: str) -> list[tuple[str, float]]:
        here = (run for run in runs if run.host == newest.host)
        known = ((run.sha, run.figures.get(configuration, {}).get("cosine")) for run in here)
        return [(sha, error) for sha, error in known if error is not None]

    return page_of(archive.find(str(source / newest.name), source, Path.cwd()), source, history)
