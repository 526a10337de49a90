"""Fragment layouts and narrow formats, written from the PTX ISA's tables (9.7.14.5) not from the machine's rules."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def a_position(shape: str, kind: str, lane: int, i: int) -> tuple[int, int]:
    """(row, column) of element i of A, table by table."""
    group, t = lane >> 2, lane % 4
    match shape, kind:
        case "m16n8k8", "f16":
            return (group if i < 2 else group + 8), t * 2 + (i & 1)
        case "m16n8k16", "f16":
            return (group if i in (0, 1, 4, 5) else group + 8), t * 2 + (i & 1) + (8 if i >= 4 else 0)
        case "m16n8k4", "tf32":
            return (group if i == 0 else group + 8), t
        case "m16n8k8", "tf32":
            return (group if i in (0, 2) else group + 8), t + (4 if i >= 2 else 0)
        case "m8n8k4", "f64":
            return group, t
        case "m16n8k4", "f64":
            return (group if i == 0 else group + 8), t
        case "m16n8k8", "f64":
            return (group if i in (0, 2) else group + 8), t + (4 if i >= 2 else 0)
        case "m16n8k16", "f64":
            return (group if i % 2 == 0 else group + 8), (i * 2 if i % 2 == 0 else i * 2 - 2) + t
        case "m8n8k16", "b8":
            return group, t * 4 + i
        case "m16n8k16", "b8":
            return (group if i < 4 else group + 8), t * 4 + (i & 3)
        case "m16n8k32", "b8":
            return (group if i < 4 or 8 <= i < 12 else group + 8), t * 4 + (i & 3) + (16 if i >= 8 else 0)
        case "m8n8k32", "b4":
            return group, t * 8 + i
        case "m16n8k32", "b4":
            return (group if i < 8 else group + 8), t * 8 + (i & 7)
        case "m16n8k64", "b4":
            return (group if i < 8 or 16 <= i < 24 else group + 8), t * 8 + (i & 7) + (32 if i >= 16 else 0)
        case "m8n8k128", "b1":
            return group, t * 32 + i
        case "m16n8k128", "b1":
            return (group if i < 32 else group + 8), t * 32 + (i & 31)
        case "m16n8k256", "b1":
            return (group if i < 32 or 64 <= i < 96 else group + 8), t * 32 + (i & 31) + (128 if i >= 64 else 0)
    raise KeyError((shape, kind))


def b_position(kind: str, lane: int, i: int) -> tuple[int, int]:
    """(k, column) of element i of B."""
    group, t = lane >> 2, lane % 4
    match kind:
        case "f16":
            return t * 2 + (i & 1) + (8 if i >= 2 else 0), group
        case "tf32" | "f64":
            return t + 4 * i, group
        case "b8":
            return t * 4 + (i & 3) + (16 if i >= 4 else 0), group
        case "b4":
            return t * 8 + (i & 7) + (32 if i >= 8 else 0), group
        case "b1":
            return t * 32 + (i & 31) + (128 if i >= 32 else 0), group
    raise KeyError(kind)


def c_position(rows: int, lane: int, i: int) -> tuple[int, int]:
    group, t = lane >> 2, lane % 4
    return (group if rows == 8 or i < 2 else group + 8), t * 2 + (i & 1)


def wgmma_d_position(thread: int, i: int) -> tuple[int, int]:
    """Row and column of element i of D in a warpgroup (9.7.15.5.1.1, figure of m64nNk16's D)."""
    warp, lane = thread // 32, thread % 32
    return warp * 16 + lane // 4 + (8 if i % 4 >= 2 else 0), (i // 4) * 8 + (lane % 4) * 2 + i % 2


def pack(values: NDArray[Any], bits: int) -> NDArray[np.uint32]:
    """Raw elements [lanes, n] -> 32-bit registers [lanes, n * bits / 32], the first element lowest."""
    per = 32 // bits
    v = values.astype(np.uint64).reshape(values.shape[0], -1, per)
    shifts = np.arange(per, dtype=np.uint64) * np.uint64(bits)
    words: NDArray[np.uint64] = np.bitwise_or.reduce(v << shifts, axis=2)
    return words.astype(np.uint32)


def to_bf16(x: NDArray[Any]) -> NDArray[np.uint16]:
    """Rounds to nearest even."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(x: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (x.astype(np.uint32) << 16).view(np.float32)


def minifloat(raw: NDArray[Any], exponent: int, mantissa: int, special: str = "none") -> NDArray[np.float64]:
    """Values of a narrow float; special: "ieee" (top exponent is inf/NaN), "nan" (all ones is NaN), "none"."""
    raw = np.asarray(raw, np.int64)
    bias = 2 ** (exponent - 1) - 1
    m, e = raw & (2**mantissa - 1), (raw >> mantissa) & (2**exponent - 1)
    value = np.where(e == 0, m * 2.0 ** (1 - bias - mantissa), (2**mantissa + m) * 2.0 ** (e - bias - mantissa))
    top = e == 2**exponent - 1
    if special == "ieee":
        value = np.where(top, np.where(m == 0, np.inf, np.nan), value)
    if special == "nan":
        value = np.where(top & (m == 2**mantissa - 1), np.nan, value)
    return np.where((raw >> (exponent + mantissa)) & 1, -value, value)


FORMATS = {
    "e4m3": (4, 3, "nan"),
    "e5m2": (5, 2, "ieee"),
    "e3m2": (3, 2, "none"),
    "e2m3": (2, 3, "none"),
    "e2m1": (2, 1, "none"),
}


def elements(rng: np.random.Generator, shape: tuple[int, int], ty: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Raw elements and their values: small integers where the type has them, so that sums are exact."""
    values = rng.integers(-4, 5, shape).astype(np.float64)
    match ty:
        case "f16":
            return values.astype(np.float16).view(np.uint16), values
        case "bf16":
            return to_bf16(values), values
        case "tf32":
            noise = rng.integers(0, 0x2000, shape, dtype=np.uint32)  # bits that must not be read
            return values.astype(np.float32).view(np.uint32) | noise, values
        case "s8" | "u8":
            raw = rng.integers(0, 256, shape, dtype=np.uint8)
            return raw, (raw.view(np.int8) if ty == "s8" else raw).astype(np.float64)
        case "s4" | "u4":
            raw = rng.integers(0, 16, shape, dtype=np.uint8)
            return raw, np.where((raw >= 8) & (ty == "s4"), raw.astype(np.float64) - 16, raw)
    exponent, mantissa, special = FORMATS[ty]
    raw = rng.integers(0, 256, shape, dtype=np.uint8)
    decoded = minifloat(raw, exponent, mantissa, special)
    # Multiples of 1/4 up to 8 keep every partial sum exact in f32.
    decoded = np.where(np.isfinite(decoded), decoded, 99)
    raw = np.where((np.abs(decoded) <= 8) & (decoded * 4 % 1 == 0), raw, 0).astype(np.uint8)
    return raw, minifloat(raw, exponent, mantissa, special)
