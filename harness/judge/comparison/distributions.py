"""What verdicts need of statistics: Student's quantile, and the bootstrap's BCa intervals. NumPy and `math` alone."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Statistic = Callable[[Array], Any]  # of samples along the last axis
_NORMAL = NormalDist()
_MOST_TERMS = 10_000


@functools.cache  # a comparison asks for the same one thousands of times
def student_quantile(tail: float, freedom: int) -> float:
    """The t that Student's T with so many degrees of freedom exceeds with probability `tail`, 0 < tail < 1/2.

    Found by bisection to the last bit of t. Raises ValueError for other tails and for no degree of freedom.
    """
    if not 0.0 < tail < 0.5 or freedom < 1:
        raise ValueError(f"no quantile for a tail of {tail} with {freedom} degrees of freedom")
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > tail:
        low, high = high, 2.0 * high
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if student_tail(middle, freedom) > tail else (low, middle)
    return high


def student_tail(t: float, freedom: int) -> float:
    """P(T > t) for t >= 0, which is I_x(freedom / 2, 1 / 2) / 2 at x = freedom / (freedom + t²).

    Its relative error is small far out too, where 1 - P(T <= t) would have no digit left.
    """
    a, b, x = freedom / 2, 0.5, freedom / (freedom + t * t)
    rest = t * t / (freedom + t * t)  # 1 - x
    if x < (a + 1.0) / (a + b + 2.0):
        return 0.5 * _incomplete_beta(a, b, x, rest)
    return 0.5 * (1.0 - _incomplete_beta(b, a, rest, x))


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """The regularised I_x(a, b), `rest` being 1 - x: the continued fraction DLMF 8.17.22, from its head on as Lentz
    does. It converges fast for x < (a + 1) / (a + b + 2); beyond, 1 - I_rest(b, a) is the way."""
    if x == 0.0:
        return 0.0
    logarithm = a * math.log(x) + b * math.log(rest) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    value = above = 1.0
    below = 0.0
    for term in range(1, _MOST_TERMS):
        m = term // 2
        if term % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below = 1.0 / ((1.0 + d * below) or sys.float_info.min)
        above = (1.0 + d / above) or sys.float_info.min
        value *= above * below
        if abs(above * below - 1.0) <= sys.float_info.epsilon:
            break
    return math.exp(logarithm) / (a * value)


def trimmed_mean(samples: Array, share: float) -> Any:
    """Means along the last axis without the `share` of values at either end of each sample."""
    count = samples.shape[-1]
    cut = int(share * count)
    kept = np.partition(samples, (cut, count - cut - 1), axis=-1)[..., cut : count - cut]
    return kept.mean(axis=-1)


def bootstrap_intervals(
    sample: Array, statistic: Statistic, confidences: Sequence[float], resamples: int, seed: int
) -> list[tuple[float, float]]:
    """Intervals of `statistic`, one a confidence, over the same resamples: bias-corrected and accelerated (BCa), Efron
    and Tibshirani, An Introduction to the Bootstrap, equations 14.9 to 14.15.

    NaN at both ends where BCa is undefined: every resample lies on one side of the sample's own value.
    """
    count = len(sample)
    drawn = statistic(sample[np.random.default_rng(seed).integers(0, count, (resamples, count))])
    own = statistic(sample)
    bias = (np.count_nonzero(drawn < own) + np.count_nonzero(drawn <= own)) / (2 * resamples)
    without = statistic(np.stack([np.delete(sample, place) for place in range(count)]))
    influence = (count - 1) * (without.mean() - without)
    spread = float(np.sum(influence**2)) ** 1.5
    if not 0.0 < bias < 1.0 or spread == 0.0:
        return [(math.nan, math.nan) for _ in confidences]
    acceleration = float(np.sum(influence**3)) / (6.0 * spread)
    shift = _NORMAL.inv_cdf(bias)

    def corrected(z: float) -> float:
        moved = shift + z
        return _NORMAL.cdf(shift + moved / (1.0 - acceleration * moved))

    intervals = []
    for confidence in confidences:
        z = _NORMAL.inv_cdf((1.0 - confidence) / 2.0)
        low, high = np.quantile(drawn, (corrected(z), corrected(-z)))
        intervals.append((float(low), float(high)))
    return intervals
