"""`fmha bisect`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Json, Quiet, Suites, Verbose, suites
from fmha.harness.cli.output import print_json, say
from fmha.harness.cli.progress import progress_for
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.evidence import bisect as stage
from fmha.harness.evidence.bisect import Bisection, Culprit
from fmha.harness.judge.comparison.comparison import Kind
from fmha.harness.stages.named_hosts import names
from fmha.harness.stages.pipeline import Request
from fmha.harness.stages.preflight import git_root
from fmha.harness.stages.report import again as run_again

HELP = """Find the commit between GOOD and BAD that made a regression.

Commits are run in worktrees of their own; your tree is left alone. Every commit's kernel/ and matrix.yaml are run by
this fmha; builds are cached, and commits that do not build are skipped, unless that is what BAD has. What is looked for
is the gravest kind of regression that BAD has against GOOD, or the kind that --for names. Several hosts test a commit
each at a time, and part the history so much the finer. When it was stopped, the same command goes on where it was.

\b
Examples:
  fmha bisect v1.0 HEAD
  fmha bisect HEAD~20 HEAD --for resources -- hd=64,t=1
  fmha bisect v1.0 HEAD --host b200 --json
  fmha bisect v1.0 HEAD --host b200a,b200b --at-once 2

Exits with 0 when the commit was found, with 4 when commits that cannot be tested hide it.
"""

BisectHosts = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="NAME[,...]",
        help="The machine that runs, a host of matrix.yaml; several with commas between them test a commit each.",
        autocompletion=completion.hosts,
    ),
]


def command(
    context: typer.Context,
    good: Annotated[str, typer.Argument(metavar="GOOD", help="A commit without the regression.")],
    bad: Annotated[str, typer.Argument(metavar="BAD", help="A later commit with it.")],
    filters: Annotated[
        list[str] | None, typer.Argument(metavar="[-- FILTER...]", help="Run only these, as for run-matrix --filter.")
    ] = None,
    host: BisectHosts = "emulator",
    suite: Suites = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="KIND", help=f"What to look for: {', '.join(Kind)}.", autocompletion=completion.kinds
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Of inputs and schedule.")] = None,
    at_once: Annotated[
        int,
        typer.Option(
            "--at-once", min=1, max=64, help="How many commits each host tests side by side, with a worker or GPU each."
        ),
    ] = 1,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    if kind is not None and kind not in set(Kind):
        raise UserError(f"--for: no kind is named {kind!r}", next_step=f"use one of {', '.join(Kind)}")
    request = Request(Path.cwd(), host=host, suite=suites(suite), filters=tuple(filters or ()), seed=seed)
    asked = Bisection(good, bad, request, Kind(kind) if kind else None, at_once)
    context.obj.action = partial(_run, asked, json, quiet, verbose)


def _run(asked: Bisection, json: bool, quiet: bool, verbose: bool) -> ExitCode:
    root = git_root(Path.cwd())
    with progress_for(sys.stderr, quiet, verbose) as progress:
        culprit = stage.bisect(root, asked, progress)
    if json:
        print_json("bisect", 1, _fields(culprit, asked))
    else:
        _show(culprit, asked)
    return ExitCode.PASS if len(culprit.candidates) == 1 else ExitCode.INCOMPLETE


def _show(culprit: Culprit, asked: Bisection) -> None:
    for item in culprit.skipped:
        say(f"skipped {item.sha[:12]}: {item.reason}")
    for name, tested in (("before", culprit.before), ("after", culprit.after)):
        say(f"{name}: {tested.sha[:12]} {tested.path or tested.reason}")
    for regression in culprit.regressions:
        say(f"  {regression}")
    say(f"again: {again(culprit, asked)}")
    if len(culprit.candidates) > 1:
        say(f"one of {len(culprit.candidates)} commits, the others cannot be tested:", "bold yellow")
        for sha in culprit.candidates:
            say(f"  {sha}")
    else:
        say(f"{culprit.sha} {culprit.subject} ({culprit.tested} commits run)", "bold red")


# What a run by itself ends with 1 for; of all else it takes the run before it to see the change.
_BY_ITSELF = frozenset({Kind.STATUS, Kind.HAZARD})


def again(culprit: Culprit, asked: Bisection) -> str:
    """The commands that show the regression once more: they end with 1 where it is there."""
    record, request = culprit.after.record, asked.request
    if record is not None:
        run = run_again(record)
    else:
        words = ["fmha", "run-matrix", "--host", names(request.host)[0]]
        words += ["--suite", request.suite] if request.suite else []
        run = shlex.join(words + [word for term in request.filters for word in ("--filter", term)])
    checkout = f"git checkout {culprit.sha[:12]} && {run}"
    if culprit.before.path is None or all(item.kind in _BY_ITSELF for item in culprit.regressions):
        return checkout
    # The run passes, or ends with 1 for another reason: what tells is the comparison.
    return f"{checkout} --quiet; {shlex.join(['fmha', 'compare', str(culprit.before.path), 'latest', '--exit-code'])}"


def _fields(culprit: Culprit, asked: Bisection) -> dict[str, Any]:
    return {
        "commit": culprit.sha if len(culprit.candidates) == 1 else None,
        "subject": culprit.subject,
        "candidates": list(culprit.candidates),
        "before": {"commit": culprit.before.sha, "run": str(culprit.before.path)},
        "after": {"commit": culprit.after.sha, "run": str(culprit.after.path)},
        "regressions": [asdict(item) for item in culprit.regressions],
        "commits_run": culprit.tested,
        "skipped": [{"commit": item.sha, "reason": item.reason} for item in culprit.skipped],
        "again": again(culprit, asked),
    }
