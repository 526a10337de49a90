"""What the stages hand to each other about one configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from fmha.harness.contract.protocol import Cell, FindingRecord, Measurement, Timed, Variant
from fmha.harness.judge.limits import FailedCheck, Limit
from fmha.harness.judge.status import Status

Withheld = Literal["guard", "stopped"]


@dataclass(frozen=True, slots=True)
class Step:
    """One configuration of a plan. Without a variant, `reason` says why: the kernel does not run it, or where it is a
    `fault`, what the commit's own code said when it was asked for one.

    `selected` is false for the guard that was added to a selection without one. `suites` are those of the selection
    that have it.
    """

    configuration: Cell
    guard: bool
    selected: bool
    variant: Variant | None
    reason: str = ""
    fault: bool = False
    suites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A step with its status and all that is known about it. `reasons` is empty only for a pass."""

    step: Step
    status: Status
    reasons: tuple[str, ...] = ()
    failed_checks: tuple[FailedCheck, ...] = ()
    measurement: Measurement | None = None
    findings: tuple[FindingRecord, ...] = ()
    stats: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    timing: Timed | None = None
    noise: Mapping[int, Measurement] = field(default_factory=dict)  # under other seeds, where it passed
    limits: Mapping[str, Limit] = field(default_factory=dict)  # all gates that it was, or would have been, held to
    drawn: Measurement | None = None  # on the inputs of the seed that the run drew
    met: tuple[str, ...] = ()  # schedules that the run drew for it besides its own
    place: str = ""  # which of several hosts, GPUs or nodes it ran on
    hashes: Mapping[str, str] = field(default_factory=dict)  # of the output, by place, where several hosts ran it
    withheld: Withheld | None = None  # why it was not run although it could be

    @property
    def id(self) -> str:
        """The configuration's name."""
        return self.step.configuration.id


class Observer(Protocol):
    """Told of progress as it happens."""

    def stage(self, name: str, detail: str) -> None:
        """A stage has begun."""

    def note(self, text: str) -> None:
        """Something to tell, within a stage."""

    def tell(self, text: str) -> None:
        """What leaves this machine: said even to who wants no progress."""

    def started(self, configuration: str) -> None:
        """A configuration has begun."""

    def finished(self, outcome: Outcome, done: int, total: int) -> None:
        """A configuration has ended; `done` of `total` have."""
