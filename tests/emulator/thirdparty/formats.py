"""Number formats as bit patterns, from their definitions and not from the emulator: float64 is the common ground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Format:
    """`unit` is the largest relative error of rounding to nearest, `tiny` half of the smallest positive number."""

    storage: type[np.generic]
    unit: float = 0.0
    tiny: float = 0.0


FORMATS = {
    "f32": Format(np.float32, 2.0**-24, 2.0**-150),
    "tf32": Format(np.float32, 2.0**-11, 2.0**-137),
    "f16": Format(np.float16, 2.0**-11, 2.0**-25),
    "bf16": Format(np.uint16, 2.0**-8, 2.0**-134),
    "e4m3": Format(np.uint8, 2.0**-4, 2.0**-10),
    "e5m2": Format(np.uint8, 2.0**-3, 2.0**-17),
    "i8": Format(np.int8),
    "i32": Format(np.int32),
}


def small_float(bits: Array, exponent_bits: int, mantissa_bits: int, bias: int) -> Array:
    """Values of finite sign-exponent-mantissa patterns, subnormals included."""
    x = bits.astype(np.int64)
    mantissa = x & ((1 << mantissa_bits) - 1)
    exponent = x >> mantissa_bits & ((1 << exponent_bits) - 1)
    sign = 1.0 - 2.0 * (x >> (mantissa_bits + exponent_bits) & 1)
    whole = np.where(exponent > 0, (1 << mantissa_bits) + mantissa, mantissa)
    values: Array = sign * np.ldexp(whole.astype(np.float64), np.maximum(exponent, 1) - bias - mantissa_bits)
    return values


def decode(bits: Array, name: str) -> Array:
    if name == "bf16":
        wide: Array = (bits.astype(np.uint32) << 16).view(np.float32)
        return wide.astype(np.float64)
    if name == "e4m3":
        return small_float(bits, 4, 3, 7)
    if name == "e5m2":
        return small_float(bits, 5, 2, 15)
    return bits.astype(np.float64)


def random(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> Array:
    """Bit patterns of numbers of order one. fp8: any finite pattern of magnitude at most 8; tf32: low bits are zero."""
    if name == "f32":
        return rng.standard_normal(shape).astype(np.float32)
    if name == "tf32":
        return (rng.standard_normal(shape).astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32)
    if name == "f16":
        return rng.standard_normal(shape).astype(np.float16)
    if name == "bf16":
        return (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if name in ("e4m3", "e5m2"):
        magnitude = rng.integers(0, 0x50 if name == "e4m3" else 0x48, shape)
        return (magnitude | rng.integers(0, 2, shape) << 7).astype(np.uint8)
    if name == "i8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    raise ValueError(name)


def round_up_error(values: Array, name: str) -> Array:
    """The most that rounding `values` to the format moves them."""
    return np.abs(values) * FORMATS[name].unit + FORMATS[name].tiny
