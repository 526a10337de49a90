"""`fmha report`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness import archive
from fmha.harness.archive import Found, Index
from fmha.harness.cli.options import Json, Results, archive_folder
from fmha.harness.cli.output import print_json, say
from fmha.harness.cli.results import stem
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.evidence import baseline
from fmha.harness.evidence.comparison import compare
from fmha.harness.evidence.limits import limits_of

HELP = """Write a run as one HTML file that needs nothing else: no network, no script.

The verdict; heat maps of every metric over head_dim, T and s_k with the worst cell named; distributions; speed against
the roofline where it was measured; resources; hazards with the source around them; what got worse since the baseline;
the history in the archive; where it all comes from. RUN is named as for fmha results.

\b
Examples:
  fmha report
  fmha report HEAD~1 --output /tmp/report.html
"""


def command(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run; latest for the newest.")] = "latest",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write.  [default: beside the run's, as .html]")
    ] = None,
    results: Results = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, run, output, results, json)


def _run(run: str, output: Path | None, results: Path | None, json: bool) -> ExitCode:
    from fmha.harness.report import Evidence, render  # here: jinja2 is not for every command's start

    folder = archive_folder(results)
    found = archive.find(run, folder, Path.cwd())
    base, damage = _baseline(found, folder)
    if damage:
        print(f"fmha: the baseline is left out: {damage}", file=sys.stderr)
    with Index(folder) as index:
        comparison = compare(base, found.record) if base else None
        limit = limits_of(found.record, Path.cwd())
        text = render(Evidence(found.record, found.path.name, index, base, comparison, limit, damage))
    path = output or found.path.parent / f"{stem(found.path.name)}.html"
    archive.replace(text.encode("utf-8", "replace"), path)
    if json:
        print_json("report", 1, {"file": str(path), "bytes": len(text.encode("utf-8", "replace"))})
    else:
        say(f"wrote {path}")
    return ExitCode.PASS


def _baseline(found: Found, folder: Path) -> tuple[archive.RunRecord | None, str]:
    """The baseline of the run, if it has one that can be read, and what is wrong with one that cannot."""
    name = baseline.name_of(found.record)
    if not baseline.path_of(name, folder).is_file():
        return None, ""
    try:
        return baseline.load(name, folder), ""
    except UserError as error:
        return None, str(error)
