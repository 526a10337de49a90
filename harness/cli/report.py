"""`fmha report`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmha.harness import archive
from fmha.harness.archive import Found, Index
from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Json, Results, archive_folder
from fmha.harness.cli.output import print_json, say
from fmha.harness.cli.results import stem
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.evidence import baseline
from fmha.harness.evidence.asked import asked
from fmha.harness.evidence.run_limits import limits_of
from fmha.harness.evidence.story import sentence, tell
from fmha.harness.evidence.views import error_of
from fmha.harness.judge.comparison.comparison import compare

if TYPE_CHECKING:
    from fmha.harness.report.page import Points

HELP = """Write a run as one HTML file that needs nothing else: no network, no script.

The verdict; heat maps of every metric over head_dim, T and s_k with the worst cell named; distributions; speed against
the roofline where it was measured; resources; hazards with the source around them; what got worse since the baseline;
the history in the archive; where it all comes from. First stands in one sentence what changed, with maps of it. RUN is
named as for fmha results; with a second run the page says what changed from the first to the second, in place of what
changed since the baseline: two commits, two hosts, or two schedules of one kernel.

\b
Examples:
  fmha report
  fmha report HEAD~1 --output /tmp/report.html
  fmha report HEAD~1 HEAD
  fmha report @emulator @h200
  fmha report HEAD@:realistic HEAD@:late
"""


def command(
    context: typer.Context,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="The run; latest for the newest.", autocompletion=completion.records)
    ] = "latest",
    later: Annotated[
        str | None,
        typer.Argument(
            metavar="[B]", help="The later run, where RUN is the earlier.", autocompletion=completion.records
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write.  [default: beside the run's, as .html]")
    ] = None,
    results: Results = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, run, later, output, results, json)


def _run(run: str, later: str | None, output: Path | None, results: Path | None, json: bool) -> ExitCode:
    folder = archive_folder(results)
    found = archive.find(later or run, folder, Path.cwd())
    base: archive.RunRecord | None
    other = ""
    if later is not None:
        earlier = archive.find(run, folder, Path.cwd())
        base, damage, other = earlier.record, "", _named(earlier, found)
    else:
        base, damage = _baseline(found, folder)
    if damage:
        print(f"fmha: the baseline is left out: {damage}", file=sys.stderr)
    with Index(folder) as index:
        text = _page(found, base, history_of(index, found.record.host.name), damage, other)
    path = output or found.path.parent / f"{stem(found.path.name)}.html"
    archive.replace(text.encode("utf-8", "replace"), path)
    if json:
        print_json("report", 1, {"file": str(path), "bytes": len(text.encode("utf-8", "replace"))})
    else:
        say(f"wrote {path}")
    return ExitCode.PASS


def page_of(found: Found, folder: Path, history: Callable[[str], Points]) -> str:
    """The page of an archived run against its baseline; `history` as in Evidence."""
    base, damage = _baseline(found, folder)
    return _page(found, base, history, damage, "")


def against_baseline(found: Found, folder: Path) -> str:
    """What is worse in an archived run than in its baseline, in a sentence; empty where nothing is or none is there."""
    base, _ = _baseline(found, folder)
    if base is None:
        return ""
    comparison = compare(base, found.record, asked(base, found.record))
    groups = tell(comparison, base, found.record)
    return sentence(groups, comparison.compared, comparison.unasked) if groups else ""


def _page(
    found: Found, base: archive.RunRecord | None, history: Callable[[str], Points], damage: str, other: str
) -> str:
    from fmha.harness.report import Evidence, render  # here: jinja2 is not for every command's start

    comparison = compare(base, found.record, asked(base, found.record)) if base else None
    limit = limits_of(found.record, Path.cwd())
    return render(Evidence(found.record, found.path.name, history, base, comparison, limit, damage, other))


def history_of(index: Index, host: str) -> Callable[[str], Points]:
    """As in Evidence, from the archive."""

    def of(configuration: str) -> Points:
        rows = reversed(index.history(configuration, host=host))
        known = ((row.run.sha, row.metrics["cosine"]) for row in rows)
        return [(sha, error_of("cosine", value)) for sha, value in known if value is not None]

    return of


def _named(earlier: Found, later: Found) -> str:
    """What tells the earlier run from the later one, in words."""
    a, b = earlier.record, later.record
    words = [f"commit {a.commit.sha[:12]}{'+' if a.commit.dirty else ''}"]
    if (a.host.name, a.host.gpu) != (b.host.name, b.host.gpu):
        words.append(f"on {a.host.gpu.name if a.host.gpu else a.host.name}")
    words += [f"schedule {a.selection.schedule}"] if a.selection.schedule != b.selection.schedule else []
    words += [f"seed {a.selection.seed}"] if a.selection.seed != b.selection.seed else []
    return ", ".join(words)


def _baseline(found: Found, folder: Path) -> tuple[archive.RunRecord | None, str]:
    """The baseline of the run, if it has one that can be read, and what is wrong with one that cannot."""
    name = baseline.name_of(found.record)
    if not baseline.path_of(name, folder).is_file():
        return None, ""
    try:
        return baseline.load(name, folder), ""
    except UserError as error:
        return None, str(error)
