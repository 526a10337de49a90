"""The numbers of one configuration: what a kernel wrote against the float64 reference. No verdict; see docs/gates.md.

Nothing here turns a NaN into agreement: a figure that cannot be computed is NaN, and NaN passes no gate.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from harness.worker.launch import POISON, Outputs
from harness.worker.protocol import Measurement
from harness.worker.reference import Reference

Array = NDArray[np.float64]


def measure(outputs: Outputs, reference: Reference) -> Measurement:
    """Compares `outputs` with `reference`; shapes must be equal."""
    with np.errstate(all="ignore"):
        o = normalised(outputs, reference)
        row_sum = outputs.row_sum.astype(np.float64)
        visible = reference.row_sum > 0
        return Measurement(
            cosine=_cosine(o, reference.o),
            relative_l2=_ratio(float(np.linalg.norm(o - reference.o)), float(np.linalg.norm(reference.o))),
            max_error=_ratio(_peak(o - reference.o), _peak(reference.o)),
            lse_error=_peak((outputs.lse.astype(np.float64) - reference.lse)[visible]),
            row_max_error=_peak((outputs.row_max.astype(np.float64) - reference.row_max)[visible]),
            row_sum_error=_peak((row_sum / reference.row_sum - 1.0)[visible]),
            nonfinite_mismatches=_nonfinite_mismatches(outputs, reference),
            unwritten=sum(int(np.count_nonzero(array.view(np.uint32) == POISON)) for array in _arrays(outputs)),
            output_hash=output_hash(outputs),
        )


def normalised(outputs: Outputs, reference: Reference) -> Array:
    """o / row_sum with the kernel's own row_sum, float64 [batch, t, head_dim].

    A row that the reference says has no key is taken as it is: 0 / 0 would hide whether the kernel wrote the zero.
    """
    divisor = np.where(reference.row_sum > 0, outputs.row_sum.astype(np.float64), 1.0)
    result: Array = outputs.o.astype(np.float64) / divisor[..., np.newaxis]
    return result


def output_hash(outputs: Outputs) -> str:
    """sha256 over the bytes of o, row_max, row_sum and lse, in this order."""
    digest = hashlib.sha256()
    for array in _arrays(outputs):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _arrays(outputs: Outputs) -> tuple[NDArray[np.float32], ...]:
    return outputs.o, outputs.row_max, outputs.row_sum, outputs.lse


def _cosine(a: Array, b: Array) -> float:
    return _ratio(float(np.vdot(a, b)), float(np.linalg.norm(a)) * float(np.linalg.norm(b)))


def _ratio(value: float, scale: float) -> float:
    """value / scale; NaN when the scale is zero, infinite or NaN: nothing can be said, so nothing agrees."""
    return value / scale if 0.0 < scale < np.inf else float("nan")


def _peak(values: Array) -> float:
    """Largest magnitude; NaN when any is NaN, or when there are none to compare."""
    return float(np.max(np.abs(values))) if values.size else float("nan")


def _nonfinite_mismatches(outputs: Outputs, reference: Reference) -> int:
    """Elements of all four outputs whose class (finite, +inf, -inf, NaN) is not the reference's."""
    expected = (reference.o_unnormalised, reference.row_max, reference.row_sum, reference.lse)
    pairs = zip(_arrays(outputs), expected, strict=True)
    return sum(int(np.count_nonzero(_classes(array) != _classes(wanted))) for array, wanted in pairs)


def _classes(values: NDArray[np.float32] | Array) -> NDArray[np.int8]:
    classes = np.zeros(values.shape, dtype=np.int8)
    classes[np.isposinf(values)] = 1
    classes[np.isneginf(values)] = 2
    classes[np.isnan(values)] = 3
    return classes
