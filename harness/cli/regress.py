"""`fmha regress`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from fmha.harness.archive import RunRecord
from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Filters, Host, Json, Junit, Quiet, Results, Verbose, Workers
from fmha.harness.cli.judge import AcceptJudge, Isolation, JudgeRef, judged
from fmha.harness.cli.output import json_bytes, print_json, say
from fmha.harness.cli.progress import progress_for
from fmha.harness.cli.screen import Console
from fmha.harness.errors import CommitError, ExitCode, UserError
from fmha.harness.evidence import comment, github, junit
from fmha.harness.evidence import regress as stage
from fmha.harness.evidence.regress import BaselineVerdict
from fmha.harness.evidence.story import grouped, lines, sentence, told_fields
from fmha.harness.evidence.views import regression_fields, speed_fields, speed_lines
from fmha.harness.judge.comparison.comparison import Comparison, Kind
from fmha.harness.stages import report
from fmha.harness.stages.pipeline import Request
from fmha.harness.text import one_line

HOOK_SECONDS = 60

HELP = """Run what the baseline ran, the guard's head_dim first, and say what got worse.

The baseline is the accepted run of this kind of host, in results/baselines/. Numbers are compared, not only thresholds:
a lower cosine or a larger error beyond the noise of different seeds, other output bits from the same inputs, a
configuration that is not run any more, a hazard that appeared, registers, spills or shared memory that grew, more
instructions or bytes, builds that take longer, a looser gate or another judge. On a GPU the baseline's commit is built,
too, and both are timed beside each other in the same run: SLOWER is a regression. docs/use/evidence.md defines the
kinds. The run is archived like any other.

\b
Examples:
  fmha regress
  fmha regress --filter hd=64,t=1 --seed 7
  fmha regress --allow hash
  fmha regress --host b200
  fmha regress --json | jq .regressions
  fmha regress --on-regression "curl -fsS --json @- https://chat.example.com/hook"
"""


def command(
    context: typer.Context,
    host: Host = "emulator",
    named: Annotated[
        str | None, typer.Option("--baseline", metavar="NAME", help="One of results/baselines/.  [default: the host's]")
    ] = None,
    suite: Annotated[str | None, typer.Option(help="Of several baselines of this host, the one of this suite.")] = None,
    filters: Filters = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="Of inputs and schedule.  [default: the baseline's]")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help=f"Report this kind and let it pass: {', '.join(Kind)}. May be repeated.",
            autocompletion=completion.kinds,
        ),
    ] = None,
    judge: JudgeRef = None,
    accept_judge: AcceptJudge = None,
    isolation: Isolation = None,
    results: Results = None,
    json: Json = False,
    junit_file: Junit = None,
    comment_file: Annotated[
        Path | None,
        typer.Option("--comment", metavar="FILE", help="Write what got worse as Markdown, for a pull request."),
    ] = None,
    on_regression: Annotated[
        str | None,
        typer.Option(
            "--on-regression",
            metavar="COMMAND",
            help="Run this when something got worse, the object of --json on its standard input; no shell reads it.",
        ),
    ] = None,
    workers: Workers = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    hook = _command(on_regression)
    request = Request(
        Path.cwd(), host=host, suite=suite, filters=tuple(filters or ()), seed=seed, results=results, workers=workers
    )
    context.obj.action = lambda: judged(
        request,
        judge,
        accept_judge,
        isolation,
        lambda chosen: _run(chosen, named, tuple(allow or ()), json, junit_file, comment_file, hook, quiet, verbose),
    )


def _run(
    request: Request,
    named: str | None,
    allow: Sequence[str],
    json: bool,
    junit_file: Path | None,
    comment_file: Path | None,
    hook: Sequence[str],
    quiet: bool,
    verbose: bool,
) -> ExitCode:
    allowed = _kinds(allow)
    with progress_for(sys.stderr, quiet, verbose) as progress:

        def show(record: RunRecord, path: Path | None) -> None:
            progress.close()
            if not json:
                report.show(record, path, Console(), table=not quiet)

        try:
            verdict = stage.regress(request, named, allowed, progress, show)
        except CommitError as error:
            if json:
                print_json("regress", 1, _nothing_run(error, allowed))
            raise
    if json:
        print_json("regress", 1, _fields(verdict))
    else:
        if not quiet:
            for note in verdict.notes:
                say(f"note: {note}")
            for line in speed_lines(verdict.comparison):
                say(line)
        for group, line in lines(verdict.groups, "fmha report"):
            fine = group.kind in allowed
            say(f"{line}{' (allowed)' if fine else ''}", "yellow" if fine else "red")
        if verdict.comparison.regressions:
            say(sentence(verdict.groups, verdict.comparison.compared, verdict.comparison.unasked))
        say(str(verdict), f"bold {'green' if verdict.exit_code is ExitCode.PASS else 'red'}")
    github.tell(verdict.new, verdict.counted, os.environ, sys.stderr)
    if junit_file:
        junit.write(junit_file, verdict.new, verdict.counted)
    if comment_file:
        comment.write(comment_file, verdict)
    if hook and verdict.counted:
        _tell(hook, json_bytes("regress", 1, _fields(verdict)))
    return verdict.exit_code


def _command(text: str | None) -> list[str]:
    try:
        words = shlex.split(text or "")
    except ValueError as error:
        raise UserError(f"--on-regression: {error}", next_step="close the quotation") from error
    if text is not None and not words:
        raise UserError("--on-regression: there is no command")
    return words


def _tell(command: Sequence[str], document: bytes) -> None:
    """Carry out the command. The verdict stands whatever becomes of it: that is told, and changes no exit code."""
    try:
        done = subprocess.run(command, input=document, capture_output=True, timeout=HOOK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"fmha: --on-regression: {command[0]}: {one_line(str(error))}", file=sys.stderr)
        return
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or [""]
        words = f"{command[0]} ended with {done.returncode}: {said[-1]}".removesuffix(": ")
        print(f"fmha: --on-regression: {one_line(words)}", file=sys.stderr)


_CALLED_NOW: Final = {"vanished": Kind.NOT_RUN.value}  # names that workflows may still have


def _kinds(names: Sequence[str]) -> frozenset[Kind]:
    names = [_CALLED_NOW.get(name, name) for name in names]
    unknown = [name for name in names if name not in set(Kind)]
    if unknown:
        raise UserError(f"--allow: no kind is named {unknown[0]!r}", next_step=f"use one of {', '.join(Kind)}")
    return frozenset(map(Kind, names))


def _nothing_run(error: CommitError, allowed: frozenset[Kind]) -> dict[str, object]:
    """The fields of a verdict where the commit could not be run at all."""
    found = Comparison((stage.cannot_be_run(error.what.partition(": ")[2].partition(": ")[2]),), (), 0)
    lacking = dict.fromkeys(("baseline", "commit", "run"))
    return {
        "exit_code": ExitCode.GATE_FAILED,
        "words": stage.NOTHING,
        **lacking,
        "compared": 0,
        "allowed": sorted(allowed),
        "speeds": [],
        "regressions": regression_fields(found),
        "notes": [],
    } | told_fields(grouped(found.regressions, {}), 0)


def _fields(verdict: BaselineVerdict) -> dict[str, object]:
    return {
        "exit_code": verdict.exit_code,
        "words": str(verdict),
        "baseline": verdict.base.commit.sha,
        "commit": verdict.new.commit.sha,
        "run": str(verdict.path) if verdict.path else None,
        "compared": verdict.comparison.compared,
        "allowed": sorted(verdict.allowed),
        "speeds": speed_fields(verdict.comparison),
        "regressions": regression_fields(verdict.comparison),
        "notes": list(verdict.notes),
    } | told_fields(verdict.groups, verdict.comparison.compared, verdict.comparison.unasked)
