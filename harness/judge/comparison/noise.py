"""Errors on a scale where they can be compared, and how far they vary with the seed; docs/understand/verdict.md."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fmha.harness.judge.comparison.distributions import student_quantile
from fmha.harness.judge.metrics import METRICS, Measurement

FALSE_ALARMS = 1e-3  # runs that raise one although nothing has changed
LEAST_DEVIATION = 0.02
LEAST_SEEDS = 10  # with fewer, Student's quantile is too large to see anything
# Without noise, by what factor an error has to grow: with the same inputs, and with others.
SAME_INPUTS = 1.2
OTHER_INPUTS = 3.0


def scaled(metric: str, value: float) -> float:
    """ln(error + floor); +inf for what is not finite."""
    error = METRICS[metric].error(value)
    return math.log(max(error, 0.0) + METRICS[metric].floor) if math.isfinite(error) else math.inf


@dataclass(frozen=True, slots=True)
class Band:
    """Where a scaled error lies when nothing has changed. `count` seeds; 0 when the limit is a plain factor."""

    centre: float
    deviation: float
    count: int

    def limit(self, comparisons: int) -> float:
        """The largest scaled error that is no news, among so many comparisons of a run."""
        if self.count == 0:
            return self.centre + self.deviation
        quantile = student_quantile(FALSE_ALARMS / max(comparisons, 1), self.count - 1)
        return self.centre + quantile * self.deviation * math.sqrt(1.0 + 1.0 / self.count)


def band_of(metric: str, values: Sequence[float]) -> Band:
    """The band of a metric's values under at least LEAST_SEEDS seeds."""
    points = [scaled(metric, value) for value in values]
    return Band(statistics.fmean(points), max(statistics.stdev(points), LEAST_DEVIATION), len(points))


def plain_band(metric: str, value: float, *, same_inputs: bool) -> Band:
    """The band around one value whose noise nobody has measured."""
    return Band(scaled(metric, value), math.log(SAME_INPUTS if same_inputs else OTHER_INPUTS), 0)


def values_of(metrics: Measurement) -> dict[str, float]:
    """The compared metrics by name, those that the kernel has."""
    return {name: value for name in METRICS if (value := getattr(metrics, name)) is not None}
