"""Who judges: the options, and the request that comes of them."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from fmha.harness import isolate
from fmha.harness.config import load
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.stages import apart
from fmha.harness.stages.named_hosts import names
from fmha.harness.stages.pipeline import Request
from fmha.harness.stages.preflight import NO_COMMIT, commit_facts, git_root

JudgeRef = Annotated[
    str | None,
    typer.Option(
        "--judge",
        metavar="REF",
        help="Judge by the harness and matrix.yaml of this commit; own for the ones here.  [default: own on the "
        "emulator, the merge base with the default branch on hosts elsewhere]",
    ),
]
Isolation = Annotated[
    str | None,
    typer.Option(
        "--isolation",
        metavar="WORD",
        help="What keeps the commit's code from this machine: auto takes what there is, require refuses to run "
        "without, off takes nothing.  [default: auto]",
    ),
]
AcceptJudge = Annotated[
    str | None,
    typer.Option("--accept-judge", metavar="WHY", help="Why it is well that the commit changes its own judge."),
]


def judged(
    request: Request,
    ref: str | None,
    accepted: str | None,
    wall: str | None,
    action: Callable[[Request], ExitCode],
) -> ExitCode:
    """Carries out `action` with the judge that was asked for, in this process or in one of that judge. `wall` is what
    is asked of isolation, for all processes that this one starts."""
    if wall is not None:
        if wall not in isolate.POLICIES:
            raise UserError(f"--isolation: {wall!r} is none of {', '.join(isolate.POLICIES)}")
        os.environ[isolate.VARIABLE] = wall
    if accepted is not None and not accepted.strip():
        raise UserError("--accept-judge: a changed judge needs its reason")
    if ref is None:
        ref, alike = _default(request)
        request = dataclasses.replace(request, alike=alike)
    if ref == apart.OWN:
        return action(request)
    found = apart.find(git_root(request.directory), ref, accepted, sys.argv[1:])
    if isinstance(found, int):
        return ExitCode(found)
    return action(dataclasses.replace(request, judge=found))


def _default(request: Request) -> tuple[str, str | None]:
    """What is said when nothing was: on a host elsewhere a commit does not bring its own judge. Its own that is file by
    file that of the default branch is none of its own; then the commit that it is of comes second."""
    facts = commit_facts(request.directory)
    settings = load(facts.root).hosts.get(names(request.host)[0])
    if settings is None or settings.remote is None or facts.commit == NO_COMMIT:
        return apart.OWN, None
    base = apart.default_ref(facts.root)
    if base is None:
        return apart.OWN, None
    return (base, None) if apart.judge_differs(facts.root, base) else (apart.OWN, base)
