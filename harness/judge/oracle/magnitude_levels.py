"""Sentinels of an output, apart from the numbers beside them, which they would hide from gates that are relative to the
largest element. docs/understand/gates.md derives the rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
CHANCE: Final = 1e-7  # that numbers without a sentinel are taken apart at one place
TIMES: Final = 3  # that a sentinel is there at least, in the mean: a symmetric output has each number twice
ROUNDING: Final = 2.0**-24  # of a float32: what is so much smaller than the inputs may be no more than their rounding


def cuts(magnitudes: Array, tolerance: float, ordinary: float) -> Array:
    """The least magnitude of each level of sentinels, in order; empty where there are none.

    Above a cut everything hides everything below it: a whole number below is within `tolerance` of one above. So is
    `ordinary`, the largest number that the kernel was given. The step between the two is too wide to be one between
    neighbours that are there by chance.
    """
    finite = magnitudes[np.isfinite(magnitudes)]
    if not tolerance or not finite.size or not float(finite.max()) * tolerance >= ordinary:
        return np.zeros(0)
    numbers = np.sort(finite[finite > 0])
    below = np.arange(1.0, numbers.size + 1.0)  # how many there are up to each, that one among them
    if numbers.size < finite.size:  # zeros, which are there by no chance
        numbers, below = np.insert(numbers, 0, 0.0), np.insert(below, 0, 0.0)
    low, high, count = numbers[:-1], numbers[1:], below[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        by_chance = count * np.log(low / high)
    # Of zeros alone below, chance says nothing; that a number stands in many places does. What is over where terms
    # cancel is zero in a right reference too, with all of their rounding.
    repeated = high.size >= TIMES * np.unique(high).size or np.unique(high).size == 1
    unlikely = np.where(low == 0, repeated, by_chance <= np.log(CHANCE))
    apart = (low <= tolerance * high) & (high * tolerance >= ordinary) & unlikely
    found: Array = high[apart]
    return found


def ordinary_of(inputs: Iterable[NDArray[Any]], tolerance: float) -> float:
    """The largest number that inputs hold beside their own sentinels, 1 at least. What is stored as whole numbers may
    be the bits of something else, and does not count."""
    floats = [np.abs(np.asarray(array, np.float64)).ravel() for array in inputs if array.dtype.kind not in "iub"]
    numbers = np.concatenate(floats) if floats else np.zeros(0)
    numbers = numbers[np.isfinite(numbers)]
    found = cuts(numbers, tolerance, 1.0)
    lowest = numbers[numbers < found[0]] if found.size else numbers
    return max(1.0, float(lowest.max(initial=0.0)))
