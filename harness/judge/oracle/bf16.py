"""bfloat16 as uint16 bit patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def round_to_bf16(values: NDArray[np.floating[Any]]) -> NDArray[np.uint16]:
    """Finite `values` rounded to the nearest bfloat16, ties to even; same shape, bit patterns."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float64]:
    """The exact float64 values of bfloat16 bit patterns, NaN for every NaN; same shape."""
    with np.errstate(invalid="ignore"):  # a NaN that signals
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
