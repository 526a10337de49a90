"""What a figure may be: the limits that matrix.yaml sets, and what is said of one that is missed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from fmha.harness.judge.metrics import METRICS
from fmha.harness.judge.numbers import Number

Bound = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits of one gate by the names of METRICS, in their order; docs/understand/gates.md defines them."""

    limits: Mapping[str, float]

    def laxer(self, other: Thresholds) -> Thresholds:
        """Of each limit, the one that more passes."""
        pairs = {name: (limit, other.limits[name]) for name, limit in self.limits.items()}
        return Thresholds({name: min(pair) if METRICS[name].least else max(pair) for name, pair in pairs.items()})

    def without(self, names: Iterable[str]) -> Thresholds:
        """Those of a configuration that does not have these metrics."""
        left_out = frozenset(names)
        return Thresholds({name: limit for name, limit in self.limits.items() if name not in left_out})


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """The most that one kernel may use: registers a thread; bytes of spills (stores and loads), of stack a thread, and
    of shared memory a CTA, static and dynamic."""

    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Biases:
    """The most of what has a direction: of a configuration, and pooled over those of a run."""

    slope_bias: float
    lse_bias: float
    coarse: float
    pooled_slope: float
    pooled_lse: float


@dataclass(frozen=True, slots=True)
class Limit:
    """A gate: the figure has to be `bound` `limit`."""

    bound: Bound
    limit: Number


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """One gate that was missed: `value` should be `bound` `limit`."""

    name: str
    value: Number
    limit: Number
    bound: Bound

    def __str__(self) -> str:
        return f"{self.name} is {self.value:.9g}; {self.bound} {self.limit:.9g} is required"


def misses(value: float, limit: float) -> bool:
    """Written as `not (...)`, so that what is no number misses."""
    return not value <= limit
