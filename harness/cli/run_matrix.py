"""`fmha run-matrix`."""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Filters, Hosts, Junit, Quiet, Results, Suites, Verbose, Workers, suites
from fmha.harness.cli.interrupts import attended
from fmha.harness.cli.judge import AcceptJudge, Isolation, JudgeRef, judged
from fmha.harness.cli.progress import ProgressDisplay, progress_for
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.judge.identity import installed_sources
from fmha.harness.stages.named_hosts import SEPARATOR, names
from fmha.harness.stages.pipeline import Request, Show, execute, prepare

if TYPE_CHECKING:
    from fmha.harness.archive import RunRecord

HELP = """Build the kernels, run a suite of matrix.yaml, gate every configuration, archive the evidence.

The guard runs first, of the attention kernels all that have its head_dim; if it does not hold, nothing else is run.
The record of the run is one JSON file in results/. Progress goes to standard error, the table and the verdict to
standard output.

\b
Examples:
  fmha run-matrix
  fmha run-matrix --suite seed --filter 'hd=64|128,t=1'
  fmha run-matrix --filter hd=64,mask=causal --dry-run
  fmha run-matrix --suite seed,cover,ragged
  fmha run-matrix --suite random --seed 7 --cases 500
  fmha run-matrix --suite random --coverage
  fmha run-matrix --case rmsnorm_rows4_columns256
  fmha run-matrix --case hd64_t32_sk384_causal --schedules 20
  fmha run-matrix --host b200a,b200b --suite random --cases 2000
  fmha run-matrix --suite seed --kernel ours,sdpa
  fmha run-matrix --json | jq .verdict
"""


# What this command alone is asked.
Kernels = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Run these kernels alone, with commas between: those of matrix.yaml, of which ours is the attention "
        "kernels, and sdpa, flash2, cudnn and fa3 on the same problems. On a GPU each is timed.",
        autocompletion=completion.kernels,
    ),
]
PrintRecord = Annotated[bool, typer.Option("--json", help="Print the record, as archived, instead of the table.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would run, in order, and run nothing.")]
Seed = Annotated[
    int | None, typer.Option(min=0, max=2**63 - 1, help="Of inputs and schedule.  [default: that of matrix.yaml]")
]
Drawn = Annotated[
    int | None,
    typer.Option(min=0, max=2**63 - 1, help="Second seed to judge on, to repeat a run.  [default: drawn anew]"),
]
Schedule = Annotated[
    str | None,
    typer.Option(
        help="When asynchronous work completes: realistic, early, late, random, spurious, pct, random:SEED; several "
        "with commas between them run one after the other.  [default: the host's]",
        autocompletion=completion.schedules,
    ),
]
Schedules = Annotated[
    int | None,
    typer.Option(min=1, max=10_000, help="Run each configuration under this many schedules, the named ones first."),
]
OneAVariant = Annotated[bool, typer.Option("--one-a-variant", help="Only the largest configuration of every kernel.")]
NamedCases = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Run the configuration of this name in place of a suite. May be repeated.",
        autocompletion=completion.configurations,
    ),
]
RandomCases = Annotated[
    int | None, typer.Option(min=1, max=10_000, help="How many configurations of a random suite to draw.")
]
Coverage = Annotated[
    bool, typer.Option("--coverage", help="Say which lines of the kernels nothing executed; emulator only.")
]
Snapshot = Annotated[
    bool, typer.Option("--snapshot", help="Host elsewhere: judge the tree as it is, as a commit of its own.")
]
ApproveProtected = Annotated[
    bool, typer.Option("--approve-protected", help="Host elsewhere: accept changed protected files.")
]
Priority = Annotated[
    Literal["high", "normal", "low"],
    typer.Option(help="Host elsewhere: which of your own waiting runs gets a GPU first."),
]
Each = Annotated[
    bool, typer.Option("--each", help="Several hosts: every one runs all configurations, and bits are compared.")
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Host elsewhere: start, print the run's name and leave; exits with 4.")
]


def command(
    context: typer.Context,
    host: Hosts = "emulator",
    suite: Suites = None,
    filters: Filters = None,
    kernel: Kernels = None,
    json: PrintRecord = False,
    plan_only: DryRun = False,
    seed: Seed = None,
    drawn: Drawn = None,
    schedule: Schedule = None,
    schedules: Schedules = None,
    one_a_variant: OneAVariant = False,
    case: NamedCases = None,
    cases: RandomCases = None,
    coverage: Coverage = False,
    judge: JudgeRef = None,
    accept_judge: AcceptJudge = None,
    isolation: Isolation = None,
    results: Results = None,
    junit_file: Junit = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    snapshot: Snapshot = False,
    approve_protected: ApproveProtected = False,
    priority: Priority = "normal",
    workers: Workers = None,
    each: Each = False,
    detach: Detach = False,
) -> None:
    request = Request(
        Path.cwd(),
        host=host,
        suite=suites(suite),
        filters=(*(filters or ()), *((f"kernel={kernel.replace(',', '|')}",) if kernel else ())),
        seed=seed,
        schedule=schedule,
        results=results,
        coverage=coverage,
        snapshot=snapshot,
        approve_protected=approve_protected,
        priority=priority,
        schedules=schedules,
        one_a_variant=one_a_variant,
        random_cases=cases,
        cases=tuple(case or ()),
        drawn=drawn,
        workers=workers,
    )
    if each and SEPARATOR not in host:
        raise UserError("--each: needs several hosts", next_step="name them with commas between: --host a,b")
    if plan_only:
        context.obj.action = partial(_plan, request, json, each)
    elif detach:
        if SEPARATOR in host:
            raise UserError("--detach: leaves one run, not those of several hosts", next_step="start them one by one")
        context.obj.action = lambda: judged(
            request, judge, accept_judge, isolation, lambda chosen: _detach(chosen, quiet, verbose)
        )
    else:
        context.obj.action = lambda: judged(
            request, judge, accept_judge, isolation, lambda chosen: _run(chosen, each, json, junit_file, quiet, verbose)
        )


def _run(request: Request, each: bool, json: bool, junit_file: Path | None, quiet: bool, verbose: bool) -> ExitCode:
    with progress_for(sys.stderr, quiet, verbose) as progress:
        show = shower(progress, json, quiet, junit_file)
        if SEPARATOR in request.host:
            from fmha.harness.stages import several

            return several.execute(request, each, progress, show)
        return execute(request, progress, show, attended(progress), meanwhile=_load_report)


def shower(progress: ProgressDisplay, json: bool, quiet: bool, junit_file: Path | None = None) -> Show:
    """Shows a record once the progress display has left the terminal, to CI systems too."""

    def show(record: RunRecord, path: Path | None) -> None:
        from fmha.harness.evidence import github  # here, as all that shows a record: the run is over

        progress.close()
        if json:
            from fmha.harness import archive
            from fmha.harness.text import escaped_json

            sys.stdout.buffer.write(escaped_json(archive.dumps(record)).encode())
        else:
            from fmha.harness.cli.screen import Console
            from fmha.harness.stages import report

            report.show(record, path, Console(), table=not quiet)
        github.tell(record, (), os.environ, sys.stderr)
        if junit_file:
            from fmha.harness.evidence import junit  # here: XML is not for every run's start

            junit.write(junit_file, record)

    return show


def _load_report() -> None:
    """What writes and shows a record, which takes a while to load."""
    import_module("fmha.harness.stages.report")
    import_module("fmha.harness.evidence.github")
    import_module("fmha.harness.archive.record_files")
    import_module("fmha.harness.stages.archive")
    installed_sources()  # which is known from here on


def _detach(request: Request, quiet: bool, verbose: bool) -> ExitCode:
    with progress_for(sys.stderr, quiet, verbose) as progress:
        from fmha.harness.stages.attach import submit

        run = submit(request, progress)
    print(run)
    return ExitCode.INCOMPLETE


def _plan(request: Request, json: bool, each: bool) -> ExitCode:
    from fmha.harness.cli.output import print_json
    from fmha.harness.stages import dry_run, several

    shared = SEPARATOR in request.host
    prepared = several.prepare(request) if shared else prepare(request)
    shares = several.dealt(prepared, names(request.host)) if shared and not each else {}
    if json:
        print_json("plan", 1, dry_run.fields(prepared, shares))
    else:
        for line in dry_run.lines(prepared, shares):
            typer.echo(line)
    return ExitCode.PASS
