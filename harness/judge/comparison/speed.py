"""Which of two builds is faster, from rounds in which both ran beside each other; docs/use/speed.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from fmha.harness.judge.comparison.distributions import bootstrap_intervals, trimmed_mean

CONFIDENCE = 0.99
ALARM_CONFIDENCE = 0.999  # of FASTER and SLOWER: a false alarm costs more than another run
MARGIN = 0.01  # a difference below it is none that anybody cares about
TRIM = 0.2  # of the rounds, on each side: a preempted round is no evidence
LEAST_ROUNDS = 10
RESAMPLES = 5000

Interval = tuple[float, float]


class SpeedVerdict(StrEnum):
    """Of a build beside another; `judge` says what each takes."""

    SAME = "SAME"
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    AMBIGUOUS = "AMBIGUOUS"


@dataclass(frozen=True, slots=True)
class JudgedSpeed:
    """`low` and `high` bound new/base - 1 with CONFIDENCE; `change` is its estimate. Clocks are medians in MHz."""

    verdict: SpeedVerdict
    change: float
    low: float
    high: float
    base_seconds: float
    new_seconds: float
    base_clock: float | None
    new_clock: float | None
    reason: str

    def __str__(self) -> str:
        words = f"{self.verdict} {self.change:+.2%} [{self.low:+.2%}, {self.high:+.2%}]"
        words += f", {self.base_seconds * 1e6:.2f} -> {self.new_seconds * 1e6:.2f} us"
        if self.base_clock and self.new_clock:
            words += f", SM clock {self.base_clock:.0f} -> {self.new_clock:.0f} MHz"
        return f"{words}: {self.reason}" if self.reason else words


def judge(
    base: Sequence[float],
    new: Sequence[float],
    base_clock: Sequence[float] = (),
    new_clock: Sequence[float] = (),
    *,
    seed: int,
) -> JudgedSpeed:
    """The verdict on seconds of `base` and `new` in the same rounds; clocks in MHz, one a round, or none.

    The ratios of the rounds are taken in logarithm, so that a drift that both builds see cancels, and averaged with
    the outer TRIM of them cut off; intervals are the BCa bootstrap's. SAME when that of CONFIDENCE lies within MARGIN
    of zero, FASTER or SLOWER when that of ALARM_CONFIDENCE lies on one side of zero, AMBIGUOUS otherwise, and when the
    clocks explain the difference.
    Raises ValueError for rounds that do not pair up or times that are not positive.
    """
    if len(base) != len(new) or not base:
        raise ValueError(f"{len(base)} rounds of one build and {len(new)} of the other")
    if not all(0 < value < math.inf for value in (*base, *new)):
        raise ValueError("times must be positive")
    ratios = np.log(np.asarray(new, dtype=np.float64) / np.asarray(base, dtype=np.float64))
    change, interval, wide = _estimate(ratios, seed)
    clocks = (_median(base_clock), _median(new_clock))
    verdict, reason = _verdict(len(base), interval, wide, change, clocks)
    return JudgedSpeed(
        verdict,
        math.expm1(change),
        math.expm1(interval[0]),
        math.expm1(interval[1]),
        float(np.median(base)),
        float(np.median(new)),
        *clocks,
        reason,
    )


def _estimate(ratios: NDArray[np.float64], seed: int) -> tuple[float, Interval, Interval]:
    """The trimmed mean, and its intervals of CONFIDENCE and of ALARM_CONFIDENCE."""
    change = float(trimmed_mean(ratios, TRIM))
    if np.ptp(ratios) == 0.0:  # a clock too coarse to see any difference
        return change, (change, change), (change, change)
    found = bootstrap_intervals(
        ratios, lambda samples: trimmed_mean(samples, TRIM), (CONFIDENCE, ALARM_CONFIDENCE), RESAMPLES, seed
    )
    # BCa is undefined when every resample has the same mean.
    whole = float(ratios.min()), float(ratios.max())
    inner, outer = (whole if math.isnan(low + high) else (low, high) for low, high in found)
    return change, inner, outer


def _verdict(
    rounds: int, interval: Interval, wide: Interval, change: float, clocks: tuple[float | None, float | None]
) -> tuple[SpeedVerdict, str]:
    if rounds < LEAST_ROUNDS:
        return SpeedVerdict.AMBIGUOUS, f"{rounds} rounds; at least {LEAST_ROUNDS} are needed"
    if interval[0] >= -MARGIN and interval[1] <= MARGIN:
        return SpeedVerdict.SAME, ""
    if wide[0] <= 0.0 <= wide[1]:
        return SpeedVerdict.AMBIGUOUS, "the interval holds zero and is too wide to say SAME"
    base_clock, new_clock = clocks
    if base_clock and new_clock:
        explained = math.log(base_clock / new_clock)  # what the clocks alone would do to the time
        if abs(explained) > MARGIN and explained * change > 0:
            return SpeedVerdict.AMBIGUOUS, "the SM clock differed between the two"
    return (SpeedVerdict.SLOWER if change > 0 else SpeedVerdict.FASTER), ""


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if len(values) else None
