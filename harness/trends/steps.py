"""Where a series steps: the stretch whose mean differs most from the rest, if chance hardly makes such a one.

This is circular binary segmentation (Olshen, Venkatraman, Lucito and Wigler, 2004). A stretch that reaches an end of
the series is a step; one that does not is a change that was taken back. For each stretch, Student's t compares the mean
inside with the mean outside; the largest is held against the number of stretches that were looked at. What is found
divides the series, and each part is looked at again, until nothing more is found. There is no threshold on how large a
step is: how sure it is decides, and that is said with it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmha.harness.judge.comparison.distributions import student_tail

LONGEST = 32  # of a stretch within the series; a longer one is found as two steps, one at each end
LEAST = 5  # values, or there is no spread to speak of


@dataclass(frozen=True, slots=True)
class LevelStep:
    """The value at `at` is the first of another level. `chance` is the probability of such a step where there is none;
    0 where values are exact. `before` and `after` are means of the levels."""

    at: int
    before: float
    after: float
    chance: float


def exact_steps(values: Sequence[float]) -> list[LevelStep]:
    """Of values that have no noise: wherever one differs from the one before it."""
    return [
        LevelStep(at, values[at - 1], values[at], 0.0) for at in range(1, len(values)) if values[at] != values[at - 1]
    ]


def steps(values: Sequence[float], least_deviation: float, most_chance: float) -> list[LevelStep]:
    """The steps of a series, in order. A spread below `least_deviation` is taken for that; a step that chance makes
    with more than `most_chance` is none."""
    if len(values) < LEAST:
        return []
    series = np.asarray(values, dtype=np.float64)
    cuts: set[int] = set()
    _divide(series, 0, least_deviation, most_chance, cuts)
    chances = _settled(series, sorted(cuts), least_deviation, most_chance)
    edges = [0, *chances, len(series)]
    means = [float(series[a:b].mean()) for a, b in itertools.pairwise(edges)]
    return [
        LevelStep(at, before, after, chance)
        for (at, chance), (before, after) in zip(chances.items(), itertools.pairwise(means), strict=True)
    ]


def _divide(
    series: NDArray[np.float64], offset: int, least_deviation: float, most_chance: float, cuts: set[int]
) -> None:
    if len(series) < LEAST:
        return
    start, stop, chance = _best(series, least_deviation)
    if not chance <= most_chance:
        return
    for a, b in ((0, start), (start, stop), (stop, len(series))):
        if a < b:
            cuts |= {offset + a} - {0}
            _divide(series[a:b], offset + a, least_deviation, most_chance, cuts)


def _settled(
    series: NDArray[np.float64], cuts: list[int], least_deviation: float, most_chance: float
) -> dict[int, float]:
    """The cuts that still are ones between the two levels beside them, each moved to where it parts them best.

    A stretch that is found first may be the middle of a longer one, whose ends come to light later: between the parts
    of what is one level there is nothing then.
    """
    while True:
        edges = [0, *cuts, len(series)]
        parts = list(zip(edges, edges[2:], strict=False))
        found = [_split(series[a:b], least_deviation) for a, b in parts]
        chances = {a + at: chance * (b - a) for (a, b), (at, chance) in zip(parts, found, strict=True)}
        weak = [place for place, chance in enumerate(chances.values()) if not chance <= most_chance]
        if not weak and list(chances) == cuts:
            return chances
        moved = sorted(chances)
        if weak:
            worst = max(chances, key=lambda at: chances[at])
            moved.remove(worst)
        elif moved == cuts:
            return chances
        cuts = moved


def _split(series: NDArray[np.float64], least_deviation: float) -> tuple[int, float]:
    """Where two levels part best, and the chance of so large a difference there."""
    count = len(series)
    centred = series - series.mean()
    ends = np.arange(1, count)
    between = np.cumsum(centred)[:-1] ** 2 * (count / (ends * (count - ends)))
    at = int(np.argmax(between))
    return at + 1, _chance(float(between[at]), float(centred @ centred), count, least_deviation)


def _chance(explained: float, total: float, count: int, least_deviation: float) -> float:
    """Of Student's t, on either side, of two means that explain so much of the sum of squares."""
    if count < 3:
        return 1.0
    variance = max((total - explained) / (count - 2), least_deviation**2)
    return 2.0 * student_tail(math.sqrt(explained / variance), count - 2)


def _best(series: NDArray[np.float64], least_deviation: float) -> tuple[int, int, float]:
    """The stretch [start, stop) that differs most, and with which probability chance makes one that does so."""
    count = len(series)
    sums = np.concatenate(([0.0], np.cumsum(series - series.mean())))
    total = float(np.sum((series - series.mean()) ** 2))
    best, looked_at = (0.0, 0, count), 0
    lengths = range(1, min(LONGEST, count // 2) + 1)
    for length in lengths:  # within, and at either end
        between = (sums[length:] - sums[:-length]) ** 2 * (count / (length * (count - length)))
        at = int(np.argmax(between))
        looked_at += len(between)
        if between[at] > best[0]:
            best = (float(between[at]), at, at + length)
    ends = np.arange(1, count)
    between = sums[1:-1] ** 2 * (count / (ends * (count - ends)))
    at = int(np.argmax(between))
    looked_at += len(between)
    if between[at] > best[0]:
        best = (float(between[at]), at + 1, count)
    explained, start, stop = best
    return start, stop, min(1.0, _chance(explained, total, count, least_deviation) * looked_at)
