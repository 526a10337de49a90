"""`fmha watch`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.archive import RunRecord
from fmha.harness.cli.common_options import Filters, Verbose
from fmha.harness.cli.output import print_json, say
from fmha.harness.cli.progress import progress_for
from fmha.harness.cli.screen import Console
from fmha.harness.config import load
from fmha.harness.errors import ExitCode, FmhaError, UserError
from fmha.harness.extras import install
from fmha.harness.stages import report
from fmha.harness.stages.pipeline import Request
from fmha.harness.stages.preflight import commit_facts

HELP = """Run the guard after every save to a kernel or to matrix.yaml, then the configurations that the save touched.

On the emulator. What was touched is seen in the compiled code: a changed comment touches nothing, a changed header
every variant that it changes. A changed adapter touches all of its kernel. The records go to .fmha/watch, not to the
archive. Ctrl-C ends it.

\b
Examples:
  fmha watch
  fmha watch --filter t=1\\|32 --suite seed
  fmha watch --json | jq --unbuffered .verdict
"""


def command(
    context: typer.Context,
    suite: Annotated[str | None, typer.Option(help="A suite of matrix.yaml.  [default: its default_suite]")] = None,
    filters: Filters = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print a line of JSON a run instead; docs/reference/json.md has its fields."),
    ] = False,
    verbose: Verbose = False,
) -> None:
    request = Request(Path.cwd(), suite=suite, filters=tuple(filters or ()))
    context.obj.action = partial(_run, request, json, verbose)


def _run(request: Request, json: bool, verbose: bool) -> ExitCode:
    if find_spec("watchfiles") is None:
        raise UserError("watchfiles is not installed, which tells of a save", next_step=install("watch"))
    from fmha.harness.evidence.watch import Watcher, watch, watched  # here: watchfiles is not for every command's start

    facts = commit_facts(request.directory)
    if facts.installed is not None:
        what = "there is nothing to watch: outside of a checkout the kernels are those that fmha brought"
        raise UserError(what, where=str(request.directory), next_step="run it in a checkout whose files you save")
    root = facts.root
    load(root).known(request.suite or load(root).default_suite)
    names = watched(root)
    console = Console()

    def show(record: RunRecord, path: Path | None) -> None:
        if json:
            print_json("watch", 1, _fields(record, path, request.filters), indent=None)
        else:
            report.show(record, None, console, table=verbose)

    def complain(error: FmhaError) -> None:
        if json:
            print_json("watch", 1, {"error": str(error)}, indent=None)
        else:
            say(str(error), "red", console)

    with progress_for(sys.stderr, not verbose, verbose) as progress:
        if not json:
            say(f"watching {', '.join(names)} in {root}; Ctrl-C ends", console=console)
        watch(Watcher(request, root, progress, show), root, names, complain)
    return ExitCode.PASS


def _fields(record: RunRecord, path: Path | None, filters: Sequence[str]) -> dict[str, object]:
    return {
        "verdict": record.verdict.word,
        "passed": record.verdict.passed,
        "total": record.verdict.total,
        "filter": ",".join(filters),
        "run": str(path) if path else None,
        "configurations": [
            {"id": item.id, "status": item.status, "reasons": item.reasons} for item in record.configurations
        ],
    }
