"""Guard: whether the proven path held, and with it whether anything else may run."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from fmha.harness.judge.status import Status
from fmha.harness.stages.outcome import Outcome, Step, Withheld


def alarm(outcomes: Sequence[Outcome]) -> str | None:
    """Why the rest must not run, or None when the guard held.

    It holds when at least one guard configuration passed and no other had any status but `pass` or `not-run`. What the
    kernel cannot run yet says nothing about the proven path; it still makes the run incomplete.
    """
    broken = [item for item in outcomes if item.status not in (Status.PASS, Status.NOT_RUN)]
    if broken:
        others = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        return f"guard: {broken[0].id} failed ({broken[0].status}){others}"
    if not any(item.status is Status.PASS for item in outcomes):
        return f"guard: {outcomes[0].id} was not run"
    return None


def withheld(steps: Sequence[Step], reason: str, why: Withheld) -> Generator[Outcome, None, None]:
    """The outcomes of steps that the guard, or whoever stopped the run, kept from running."""
    for step in steps:
        yield Outcome(step, Status.NOT_RUN, (reason,), withheld=why)
