"""The numbers of one configuration: what a kernel wrote against the float64 reference. No verdict; see
docs/understand/gates.md.

Nothing here turns a NaN into agreement: a figure that cannot be computed is NaN, and NaN passes no gate.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.metrics import Measurement, Worst
from fmha.harness.judge.oracle.bias import bias
from fmha.harness.judge.oracle.magnitude_levels import ROUNDING, cuts
from fmha.harness.judge.oracle.outputs import POISON, POISON_BF16, Outputs
from fmha.harness.judge.oracle.reference import Reference

Array = NDArray[np.float64]
Statistic = NDArray[np.float32] | None
LARGEST_ROOT: Final = 1e150  # of a number, above which sums of squares overflow
LEAST_SQUARE: Final = 1e-280  # of a sum of squares, below which they lose bits


def measure(configuration: Configuration, outputs: Outputs, reference: Reference) -> Measurement:
    """Compares `outputs` with `reference`; shapes must be equal."""
    with np.errstate(all="ignore"):
        factors = np.ones_like(reference.o) if configuration.output == "unnormalised" else reference.o_unnormalised
        o, o_reference = _told_apart(*compared(configuration, outputs, reference), factors)
        off = o - o_reference
        visible = reference.row_sum > 0
        return Measurement(
            cosine=cosine(o, o_reference),
            relative_l2=ratio(float(np.linalg.norm(off)), float(np.linalg.norm(o_reference))),
            max_error=ratio(peak(off), peak(o_reference)),
            lse_error=_error(outputs.lse, reference.lse, visible),
            row_max_error=_error(outputs.row_max, reference.row_max, visible),
            row_sum_error=_row_sum_error(outputs.row_sum, reference.row_sum, visible),
            nonfinite_mismatches=_nonfinite_mismatches(configuration, outputs, reference),
            unwritten=sum(_poisoned(array) for array in _arrays(outputs)),
            output_hash=output_hash(outputs),
            bias=bias(configuration, outputs, reference, o, o_reference),
        )


def _error(values: Statistic, wanted: Array, visible: NDArray[np.bool_]) -> float | None:
    """The largest over the rows that see a key; None for what was not asked for. So for `_row_sum_error`."""
    return None if values is None else peak((values.astype(np.float64) - wanted)[visible])


def _row_sum_error(values: Statistic, wanted: Array, visible: NDArray[np.bool_]) -> float | None:
    if values is None:
        return None
    row_sum = values.astype(np.float64)
    # Rows without a key hold zeros: their error is absolute. `where` keeps 0 / 0 out.
    return peak(np.where(visible, row_sum / np.where(visible, wanted, 1.0) - 1.0, row_sum))


@dataclass(frozen=True, slots=True)
class WrittenOutput:
    """An output of any kernel: what it is, what it should be, and which of its elements nobody wrote. Of one shape."""

    name: str
    values: Array
    wanted: Array
    unwritten: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Found:
    """The figures of one output. `gravity` orders `worst` among those of all outputs."""

    cosine: float
    relative_l2: float
    max_error: float
    mismatches: int
    unwritten: int
    sentinels: int
    gravity: tuple[bool, bool, bool, float]
    worst: Worst | None


def general(
    outputs: Sequence[WrittenOutput], output_hash: str, tolerance: float = 0.0, ordinary: float = 1.0
) -> Measurement:
    """Of any kernel: the worst of all outputs, each compared by itself. An infinity where there should be that one is
    right, and is no number. Sentinels are compared by themselves: `tolerance` is the gate of `max_error`, 0 where
    nothing is taken apart, and `ordinary` the largest number that the kernel was given."""
    with np.errstate(all="ignore"):
        found = [_found(output, tolerance, ordinary) for output in outputs]
    return Measurement(
        cosine=float(np.min([item.cosine for item in found])),  # NumPy's: a NaN among them is the answer
        relative_l2=float(np.max([item.relative_l2 for item in found])),
        max_error=float(np.max([item.max_error for item in found])),
        nonfinite_mismatches=sum(item.mismatches for item in found),
        unwritten=sum(item.unwritten for item in found),
        output_hash=output_hash,
        worst=max(found, key=lambda item: item.gravity).worst,
        sentinels=sum(item.sentinels for item in found),
    )


def _found(output: WrittenOutput, tolerance: float, ordinary: float) -> _Found:
    values, wanted = output.values, output.wanted
    kinds, wanted_kinds = classes(values), classes(wanted)
    other = kinds != wanted_kinds
    alike = ~other & np.isinf(wanted)
    numbers, should = (np.where(alike, 0.0, array) for array in (values, wanted))
    borders = cuts(np.abs(should), tolerance, ordinary)
    level = np.searchsorted(borders, np.abs(should), side="right")
    relative = np.zeros(should.shape)  # errors, beside the largest element of their level
    figures = []
    for number in range(borders.size + 1):
        of = level == number
        least = ordinary if borders.size and number == 0 else 0.0
        found, relative[of] = _figures(numbers[of], should[of], least)
        figures.append(found)
    cosines, l2, peaks = zip(*figures, strict=True)
    largest = float(np.max(peaks))
    gravity, worst = _worst(output, other, relative, largest)
    return _Found(
        cosine=float(np.min(cosines)),
        relative_l2=float(np.max(l2)),
        max_error=largest,
        mismatches=int(np.count_nonzero(other)),
        unwritten=int(np.count_nonzero(output.unwritten)),
        sentinels=int(np.count_nonzero(level)),
        gravity=gravity,
        worst=worst,
    )


def _figures(numbers: Array, should: Array, ordinary: float) -> tuple[tuple[float, float, float], Array]:
    """Cosine, relative L2 and largest relative error of one level, and the error of each element beside the largest
    one. What is beside sentinels and no more than a rounding of `ordinary` counts as zero, and its errors are relative
    to that."""
    largest = peak(should)
    if LARGEST_ROOT < largest < np.inf:  # its square is infinite
        numbers, should, largest = numbers / largest, should / largest, 1.0
    off = numbers - should
    if ordinary and largest <= ROUNDING * ordinary:
        errors = np.abs(off) / ordinary
        return (1.0, ratio(float(np.linalg.norm(errors)), math.sqrt(max(1, off.size))), peak(errors)), errors
    l2 = ratio(float(np.linalg.norm(off)), float(np.linalg.norm(should)))
    return (cosine(numbers, should), l2, ratio(peak(off), largest)), np.abs(off) / (largest or 1.0)


def _worst(
    output: WrittenOutput, other: NDArray[np.bool_], relative: Array, largest: float
) -> tuple[tuple[bool, bool, bool, float], Worst | None]:
    """The first element that nobody wrote, else the first of another class than it should be, else the one furthest
    off; and how grave that is beside other outputs' elements."""
    missing, strange, unclear = bool(output.unwritten.any()), bool(other.any()), not largest < np.inf
    gravity = missing, strange, unclear, 0.0 if unclear else largest
    if not relative.size or not (missing or strange or unclear or largest):
        return gravity, None
    place = output.unwritten if missing else other if strange else np.where(np.isnan(relative), np.inf, relative)
    index = np.unravel_index(int(np.argmax(place)), relative.shape)
    got = None if missing else float(output.values[index])
    return gravity, Worst(output.name, tuple(map(int, index)), got, float(output.wanted[index]))


def compared(configuration: Configuration, outputs: Outputs, reference: Reference) -> tuple[Array, Array]:
    """O and what it should be, [batch, t, heads, head_dim]: both normalised, whatever the kernel was asked for.

    Un-normalised O is divided by the kernel's own row_sum, and has no sink. A row that the reference says has no key is
    taken as it is: 0 / 0 would hide whether the kernel wrote the zero.
    """
    o = outputs.o_values
    if configuration.output != "unnormalised":
        return o, reference.o
    visible = reference.row_sum > 0
    assert outputs.row_sum is not None, "un-normalised output is asked for with all statistics"
    divisor = np.where(visible, outputs.row_sum.astype(np.float64), 1.0)[..., np.newaxis]
    wanted = np.where(visible, reference.row_sum, 1.0)[..., np.newaxis]
    return o / divisor, reference.o_unnormalised / wanted


def _told_apart(o: Array, wanted: Array, factors: Array) -> tuple[Array, Array]:
    """`o` where it differs from `wanted` by what float32 with flushed denormals can tell apart, else `wanted`.

    A sink far above all logits leaves O below float32's smallest normal number: zero is then as right as any bits. It
    is so where that becomes of the number that un-normalised O, `factors`, is multiplied by.
    """
    # In place: of a large output each array more costs as much as what is computed in it.
    least = np.abs(factors)
    np.maximum(least, 1.0, out=least)
    least *= np.finfo(np.float32).tiny
    off = o - wanted
    np.abs(off, out=off)
    return np.where(off < least, wanted, o), wanted


def output_hash(outputs: Outputs) -> str:
    """sha256 over the bytes of o, row_max, row_sum and lse, in this order, as far as they were asked for."""
    digest = hashlib.sha256()
    for array in _arrays(outputs):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _arrays(outputs: Outputs) -> tuple[NDArray[Any], ...]:
    arrays = outputs.o, outputs.row_max, outputs.row_sum, outputs.lse
    return tuple(array for array in arrays if array is not None)


def _poisoned(array: NDArray[Any]) -> int:
    if array.dtype == np.uint16:
        return int(np.count_nonzero(array == POISON_BF16))
    return int(np.count_nonzero(array.view(np.uint32) == POISON))


def cosine(a: Array, b: Array) -> float:
    """1 also when both are zero everywhere, as where no row sees a key: there is nothing else to be right about."""
    if not a.any() and not b.any():
        return 1.0
    scale = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    if scale < LEAST_SQUARE and a.any() and b.any():  # a sink far above all logits leaves O as small as 1e-300
        return cosine(a / peak(a), b / peak(b))
    return ratio(float(np.vdot(a, b)), scale) if scale else float("nan")


def ratio(value: float, scale: float) -> float:
    """value / scale, 0 / 0 being 0; NaN when only the scale is zero, or it is infinite or NaN: nothing can be said."""
    if value == 0.0 == scale:
        return 0.0
    return value / scale if 0.0 < scale < np.inf else float("nan")


def peak(values: Array) -> float:
    """Largest magnitude; NaN when any is NaN, 0 when there are none to compare."""
    return float(np.max(np.abs(values))) if values.size else 0.0


def _nonfinite_mismatches(configuration: Configuration, outputs: Outputs, reference: Reference) -> int:
    """Elements of all outputs that were asked for, whose class (finite, +inf, -inf, NaN) is not the reference's."""
    o = reference.o_unnormalised if configuration.output == "unnormalised" else reference.o
    expected = (o, reference.row_max, reference.row_sum, reference.lse)
    written = (outputs.o_values, outputs.row_max, outputs.row_sum, outputs.lse)
    pairs: Iterator[tuple[NDArray[Any] | None, Array]] = zip(written, expected, strict=True)
    return sum(int(np.count_nonzero(classes(array) != classes(wanted))) for array, wanted in pairs if array is not None)


def classes(values: NDArray[Any]) -> NDArray[np.int8]:
    """Of each value: 0 finite, 1 +inf, 2 -inf, 3 NaN."""
    classes = np.zeros(values.shape, dtype=np.int8)
    classes[np.isposinf(values)] = 1
    classes[np.isneginf(values)] = 2
    classes[np.isnan(values)] = 3
    return classes
