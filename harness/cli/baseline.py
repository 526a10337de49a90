"""`fmha baseline`: accept, show."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from harness import archive
from harness.archive import BASELINES, RunRecord
from harness.cli.options import Json, Quiet, Results, Verbose, archive_folder
from harness.cli.output import print_json, say
from harness.cli.progress import progress_for
from harness.errors import ExitCode, UserError
from harness.evidence import baseline
from harness.stages.preflight import git_root

SHORT_HELP = "The runs that regress compares with."

HELP = """The runs that fmha regress holds others against, one for each kind of host.

A baseline is an archived run in results/baselines/, checked in, with the reason why it was accepted and the noise that
other seeds make in its numbers.

\b
Examples:
  fmha baseline accept latest --why 'head_dim 128 added'
  fmha baseline accept HEAD --why 'P is rounded once' --seeds 30
  fmha baseline show
"""

SEEDS = 20

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.command(name="accept", help="Make an archived run the baseline of its kind of host; runs it under more seeds.")
def accept(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run; latest for the newest.")],
    why: Annotated[str, typer.Option(help="The reason, kept in the baseline.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds the noise comes from.")] = SEEDS,
    results: Results = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    context.obj.action = partial(_accept, run, why, seeds, results, json, quiet, verbose)


@app.command(name="show", help="Show what was accepted, when and why.")
def show(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One baseline.  [default: all]")] = None,
    results: Results = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_show, name, results, json)


def _accept(run: str, why: str, seeds: int, results: Path | None, json: bool, quiet: bool, verbose: bool) -> ExitCode:
    folder, root = archive_folder(results), git_root(Path.cwd())
    found = archive.find(run, folder, root)
    with progress_for(sys.stderr, quiet, verbose) as progress:
        accepted = baseline.accept(found.record, why, seeds, folder, root, progress)
    if json:
        print_json("baseline", 1, {"baselines": [_fields(accepted.path.stem, accepted.record)]})
    else:
        say(f"{accepted.path}: commit {accepted.record.commit.sha[:12]}, noise of {accepted.runs} seeds; commit it")
    return ExitCode.PASS


def _show(name: str | None, results: Path | None, json: bool) -> ExitCode:
    folder = archive_folder(results)
    names = [name] if name else sorted(path.stem for path in (folder / BASELINES).glob("*.json"))
    if not names:
        raise UserError("no baseline yet", where=str(folder / BASELINES), next_step="fmha baseline accept makes one")
    records = {name: baseline.load(name, folder) for name in names}
    if json:
        print_json("baseline", 1, {"baselines": [_fields(*item) for item in records.items()]})
        return ExitCode.PASS
    for name, record in records.items():
        say(
            f"{name}: commit {record.commit.sha[:12]}, suite {record.selection.suite},"
            f" {len(record.configurations)} configurations"
        )
        if record.acceptance:
            taken = record.acceptance
            say(f"  {taken.accepted:%Y-%m-%d} by {taken.by}, noise of {len(taken.seeds)} seeds: {taken.why}")
    return ExitCode.PASS


def _fields(name: str, record: RunRecord) -> dict[str, object]:
    taken = record.acceptance
    return {
        "name": name,
        "commit": record.commit.sha,
        "suite": record.selection.suite,
        "configurations": len(record.configurations),
        "accepted": taken.accepted.isoformat() if taken else None,
        "by": taken.by if taken else None,
        "why": taken.why if taken else None,
        "replaces": taken.replaces if taken else None,
        "seeds": list(taken.seeds) if taken else [],
    }
