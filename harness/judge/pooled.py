"""Pooled: what is too small to see in one configuration, over all that share something; docs/understand/gates.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from fmha.harness.judge.limits import Biases, misses
from fmha.harness.judge.metrics import Bias, Measurement
from fmha.harness.judge.numbers import Number
from fmha.harness.judge.status import Status

# What products truncated in float32 take from O by themselves, which no number of configurations averages away.
LEAST_DEVIATION: Final = 2e-5
VARIANT: Final = "variant "  # the group of a kernel, before its name
LEAST_CONFIGURATIONS: Final = 2  # one alone has gates of its own


class _Configuration(Protocol):
    @property
    def parameters(self) -> dict[str, Any]: ...


class _Variant(Protocol):
    @property
    def name(self) -> str: ...


class _Step(Protocol):
    @property
    def configuration(self) -> _Configuration: ...
    @property
    def variant(self) -> _Variant | None: ...


class JudgedOutcome(Protocol):
    """A configuration with its status and what was measured of it."""

    @property
    def step(self) -> _Step:
        """What was to be run."""

    @property
    def status(self) -> Status:
        """What came of it."""

    @property
    def measurement(self) -> Measurement | None:
        """Its figures; None where it gave none."""

    @property
    def drawn(self) -> Measurement | None:
        """Those on the inputs of the drawn seed; None where there are none."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """A figure over all configurations of a run that have something in common, those that failed left out."""

    group: str = field(metadata={"description": "a variant, or a parameter with its value"})
    name: Literal["pooled_slope", "pooled_lse"]
    value: Number = field(metadata={"description": "in the unit of the limit"})
    limit: Number
    configurations: int
    text: str = field(metadata={"description": "the figure in words"})

    @property
    def missed(self) -> bool:
        """Whether the figure is beyond its limit."""
        return misses(self.value, self.limit)

    def __str__(self) -> str:
        return f"{self.group}: {self.text}"


def pooled(outcomes: Sequence[JudgedOutcome], biases: Biases | None) -> tuple[Pooled, ...]:
    """The figures of every variant, and all others that miss their limit, the worst first."""
    if biases is None:
        return ()
    told = [figure for figure in figures(outcomes, biases) if figure.missed or figure.group.startswith(VARIANT)]
    return tuple(sorted(told, key=lambda figure: not figure.missed))


def figures(outcomes: Sequence[JudgedOutcome], biases: Biases) -> Iterator[Pooled]:
    """Those of every group. Only what passed by itself is pooled: what failed is told already, and would be told again
    by every group it is in."""
    passed = [outcome for outcome in outcomes if outcome.status is Status.PASS and any(_biases(outcome))]
    for name, members in _groups(passed).items():
        if len(members) >= LEAST_CONFIGURATIONS:
            yield from _figures(name, members, biases)


def _groups(outcomes: Sequence[JudgedOutcome]) -> dict[str, list[JudgedOutcome]]:
    """By variant, and by every value of every parameter."""
    groups: dict[str, list[JudgedOutcome]] = {}
    for outcome in outcomes:
        if outcome.step.variant is not None:
            groups.setdefault(f"{VARIANT}{outcome.step.variant.name}", []).append(outcome)
        for name, value in outcome.step.configuration.parameters.items():
            groups.setdefault(f"{name}={value}", []).append(outcome)
    return groups


def _figures(group: str, members: Sequence[JudgedOutcome], biases: Biases) -> Iterator[Pooled]:
    found = [bias for outcome in members for bias in _biases(outcome)]
    measures: tuple[tuple[Literal["pooled_slope", "pooled_lse"], Callable[[list[Bias]], tuple[float, str]]], ...]
    measures = (("pooled_slope", _slope), ("pooled_lse", _lse))
    for name, figure in measures:
        value, text = figure(found)
        limit: float = getattr(biases, name)
        words = f"{text} over {len(members)} configurations; at most {limit:g} is required"
        yield Pooled(group, name, value, limit, len(members), words)


def _biases(outcome: JudgedOutcome) -> Iterator[Bias]:
    for measurement in (outcome.measurement, outcome.drawn):
        if measurement is not None and measurement.bias is not None:
            yield measurement.bias


def _slope(found: list[Bias]) -> tuple[float, str]:
    """Each weighs what its own deviation allows."""
    rows = [bias for bias in found if bias.slope_deviation]
    weights = [bias.slope_deviation**-2 for bias in rows]
    if not rows:
        return 0.0, "no row of O has a length"
    slope = sum(weight * bias.slope for weight, bias in zip(weights, rows, strict=True)) / sum(weights)
    deviation = math.hypot(1.0 / math.sqrt(sum(weights)), LEAST_DEVIATION)
    value = abs(slope) / deviation
    return value, f"O is {1.0 + slope:.6f} times the reference's, {value:.3g} deviations of what rounding does,"


def _lse(found: list[Bias]) -> tuple[float, str]:
    mean = sum(bias.lse_mean for bias in found) / len(found)
    return abs(mean), f"LSE is off by {mean:+.3g} times its resolution on average"
