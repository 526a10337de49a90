"""What is small and has a direction: O's scale, LSE's mean, outputs of too few bits. docs/understand/gates.md derives
the limits.

A kernel's honest errors are roundings: as often up as down, and of a size that can be predicted. An error that always
goes one way stays below every limit of size. It stands out once it is added up and held against roundings.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.metrics import Bias
from fmha.harness.judge.oracle.bf16 import from_bf16, round_to_bf16
from fmha.harness.judge.oracle.outputs import Outputs
from fmha.harness.judge.oracle.reference import Reference

Array = NDArray[np.float64]

ROWS: Final = 32  # of a group: a warp's
# Of a value's rounding to bf16, relative to the value, whose mantissa m in [1, 2) is as likely in every octave: a
# rounding is uniform over 2^-7, and 1 / m^2 is 3 / (8 ln 2) on average.
ROUNDING: Final = 2.0**-7 / math.sqrt(12.0) * math.sqrt(3.0 / (8.0 * math.log(2.0)))
LEAST_DEVIATION: Final = 2.0**-16  # of a row's slope: where no P is rounded, float32's sums are
SMALLEST: Final = 1e-30  # of an element or a row: below, float32's smallest normal number takes bits that are needed
MANTISSA: Final = 10  # bits of fp16's and of TF32's
# Variance of a slope: of a row of two keys O is a sum of two products, which may be of few bits.
FEW_KEYS: Final = 1 / 8
FEWEST: Final = 256  # elements of O: of less, most may be products of few bits by chance
NEAR: Final = 64  # units in the last place: by which float32's own sums may miss a number of few bits


def bias(configuration: Configuration, outputs: Outputs, reference: Reference, o: Array, wanted: Array) -> Bias:
    """`o` and `wanted` are the outputs' O and the reference's, both normalised, [batch, t, heads, head_dim]."""
    visible = (reference.row_sum > 0).reshape(-1)
    slopes, variances = _slopes(configuration, reference, o, wanted, visible)
    weights = 1.0 / variances
    groups = _sums(slopes * weights) / np.sqrt(_sums(weights))
    slope, deviation = _pooled(slopes, weights)
    errors = np.zeros(0)  # none of what was not asked for
    if outputs.lse is not None:
        errors = ((outputs.lse.astype(np.float64) - reference.lse) / reference.lse_resolution).reshape(-1)[visible]
    means = _sums(errors) / _sums(np.ones_like(errors))
    return Bias(
        slope=slope,
        slope_deviation=deviation,
        slope_bias=max(_peak(groups), abs(slope) / deviation if deviation else 0.0),
        lse_bias=_peak(means),
        lse_mean=float(errors.mean()) if errors.size else 0.0,
        coarse=_coarse(configuration, outputs, reference),
    )


def _slopes(
    configuration: Configuration, reference: Reference, o: Array, wanted: Array, visible: NDArray[np.bool_]
) -> tuple[Array, Array]:
    """Of every row that sees a key: by what share O is longer along the reference, and the variance that has."""
    head_dim = o.shape[-1]
    rows, ideal = o.reshape(-1, head_dim)[visible], wanted.reshape(-1, head_dim)[visible]
    variances = reference.slope_variance.reshape(-1)[visible]
    square = np.square(ideal)
    length = square.sum(axis=1)
    long = length > SMALLEST**2
    rows, ideal, length = rows[long], ideal[long], length[long]
    variances, expected = variances[long], ideal
    if configuration.output == "bf16":
        # What the reference would be in bf16: a row of one key that a sink makes shorter by less than bf16 holds is
        # rounded back as a whole, and that is no error of the kernel's.
        expected = from_bf16(round_to_bf16(ideal))
        # Two keys of nearly the same logit put elements beside the middle of two bf16. P of such keys is 1, and the row
        # sum a little less than their number: all of these elements would be rounded away from zero.
        middle = np.abs(rows + expected - 2 * ideal) <= 2 * LEAST_DEVIATION * np.abs(ideal)
        expected = np.where(middle, rows, expected)
        variances = variances + np.square(square[long]).sum(axis=1) / np.square(length)
    slopes = np.einsum("rd,rd->r", rows - expected, ideal) / length
    return slopes, ROUNDING**2 * variances + LEAST_DEVIATION**2


def _pooled(slopes: Array, weights: Array) -> tuple[float, float]:
    """The mean with its deviation; two zeros where there is no row."""
    total = float(weights.sum())
    return (float((slopes * weights).sum()) / total, 1.0 / math.sqrt(total)) if total else (0.0, 0.0)


def _sums(values: Array) -> Array:
    """Of every group of rows."""
    return np.add.reduceat(values, np.arange(0, len(values), ROWS)) if len(values) else values


def _peak(values: Array) -> float:
    return float(np.max(np.abs(values))) if values.size else 0.0


def _coarse(configuration: Configuration, outputs: Outputs, reference: Reference) -> float:
    """The share of O's elements in float32 that fewer bits would hold, of those that the reference needs them for."""
    if configuration.output == "bf16":
        return 0.0
    exact = reference.o_unnormalised if configuration.output == "unnormalised" else reference.o
    many = (reference.slope_variance < FEW_KEYS)[..., np.newaxis]
    fine = (_beyond(exact.astype(np.float32)) >= NEAR) & (np.abs(exact) > SMALLEST) & many
    return int(np.count_nonzero(_beyond(outputs.o)[fine] == 0)) / max(int(np.count_nonzero(fine)), FEWEST)


def _beyond(values: NDArray[Any]) -> NDArray[np.int64]:
    """How far float32 values are from one of 1 + MANTISSA significant bits, in units of the last place."""
    rest = values.view(np.uint32).astype(np.int64) & ((1 << (23 - MANTISSA)) - 1)
    result: NDArray[np.int64] = np.minimum(rest, (1 << (23 - MANTISSA)) - rest)
    return result
