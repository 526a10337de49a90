"""`fmha attach`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.interrupts import attend
from fmha.harness.cli.progress import progress_for
from fmha.harness.cli.run_matrix import shower
from fmha.harness.errors import ExitCode
from fmha.harness.stages.attach import attach, place_of

HELP = """Follow a run on a host elsewhere, from its first event to its verdict, and archive it.

A run that was archived before is shown again and not archived twice. Its host is known when the run was started from
this checkout; otherwise name it.

\b
Examples:
  fmha attach 20261121T101500Z-0123456789ab-89abcdef
  fmha attach 20261121T101500Z-0123456789ab-89abcdef --host b200 --json
"""


def command(
    context: typer.Context,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run, as fmha ps lists it.", autocompletion=completion.runs)
    ],
    host: Annotated[str | None, typer.Option(help="The host that has it.", autocompletion=completion.hosts)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the record, as archived, instead of the table.")] = False,
    results: Annotated[
        Path | None, typer.Option(help="Folder of the archive.  [default: results/ of the checkout]")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no table: failures and verdict only.")
    ] = False,
) -> None:
    context.obj.action = partial(_run, run, host, json, results, quiet)


def _run(run: str, host: str | None, json: bool, results: Path | None, quiet: bool) -> ExitCode:
    place = place_of(run, Path.cwd(), host)
    with progress_for(sys.stderr, quiet) as progress:
        show = shower(progress, json, quiet)
        return attach(run, place, results, progress, show, lambda opened: attend(opened, progress))
