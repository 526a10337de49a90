"""The plan: which configurations run, in which order, on which variants."""

from __future__ import annotations

from dataclasses import dataclass

from harness.config import Filter, Matrix
from harness.errors import UserError
from harness.hosts import Host
from harness.stages.outcome import Step
from harness.worker.protocol import Configuration, Variant


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order of the work: the guard first. There is always at least one of each."""

    suite: str
    filter: Filter
    steps: tuple[Step, ...]

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Each needed variant once, in the order of first use."""
        return tuple(dict.fromkeys(step.variant for step in self.steps if step.variant))

    @property
    def guard(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.guard)

    @property
    def rest(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if not step.guard)


def make_plan(matrix: Matrix, suite: str, accepted: Filter, host: Host) -> Plan:
    """Plan a suite under a filter. Raises UserError for an unknown suite or a selection without configurations.

    The selection's configurations of the guard's head_dim are the guard. A selection without any gets the guard's
    fallback in addition, so that nothing is ever run before the proven path has been seen to hold.
    """
    if suite not in matrix.suites:
        raise UserError(f"no suite is named {suite!r}", next_step=f"matrix.yaml has {', '.join(matrix.suites)}")
    selection = accepted.select(matrix.suites[suite], suite)
    guard = [item for item in selection if matrix.is_guard(item)]
    rest = [item for item in selection if not matrix.is_guard(item)]
    steps = [_step(item, host, guard=True) for item in guard]
    if not guard:
        steps = [_step(matrix.guard.fallback, host, guard=True, selected=False)]
    steps += [_step(item, host, guard=False) for item in rest]
    return Plan(suite, accepted, tuple(steps))


def _step(configuration: Configuration, host: Host, *, guard: bool, selected: bool = True) -> Step:
    variant = host.variant_for(configuration)
    if isinstance(variant, str):
        return Step(configuration, guard, selected, None, variant)
    return Step(configuration, guard, selected, variant)
