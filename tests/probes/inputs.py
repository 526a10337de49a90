"""Inputs of the scalar probes: the edges of each format, and hashed bit patterns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.probes.case import Array, hashed, hashed32

_F32 = [
    0.0,
    1e-45,
    1.1754942e-38,
    1.1754944e-38,
    1e-40,
    0.25,
    0.5,
    0.49999997,
    1.0,
    1.0000001,
    0.99999994,
    1.5,
    2.0,
    2.5,
]
_F32 += [3.0, 3.5, 7.5, 127.5, 240.0, 256.0, 448.0, 464.0, 464.00003, 480.0, 57344.0, 61440.0, 65504.0, 65519.996]
_F32 += [65520.0, 32767.5, 65535.5, 8388607.5, 8388608.0, 16777216.0, 16777217.0, 2147483520.0, 2147483648.0]
_F32 += [4294967040.0, 4294967296.0, 9.223372e18, 1.8446744e19, 3.4028235e38, 1.7e38, np.inf, 6e-8, 2.98e-8, 6.1e-5]
_F32 += [0.001953125, 0.0009765625, 0.015625, 0.017578125, 1.52587890625e-05, 7.62939453125e-06, 126.0, 128.0, 149.5]


def _f32_edges() -> NDArray[np.uint32]:
    with np.errstate(over="ignore"):
        values = np.array(_F32, np.float32).view(np.uint32)
    nans = np.array([0x7FC00000, 0x7F800001, 0x7FC12345], np.uint32)
    # Around the ties of bf16, tf32, f16 and fp8: half of the last bit kept, with both parities, and neighbours.
    ties = [0x3F800000 | k << s | 1 << (s - 1) for s in (13, 16, 20, 21) for k in (0, 1)]
    near = np.array(ties, np.uint32)
    positive = np.concatenate([values, nans, near, near - np.uint32(1), near + np.uint32(1)])
    return np.concatenate([positive, positive | np.uint32(0x80000000)])


F32 = _f32_edges()
# Products of these, and the smallest normal itself, lie just below and at 2^-126: where .ftz must decide.
NEAR_TINY = np.array([0x3F7FFFFE, 0x3F7FFFFF, 0x3F800000, 0x00800000, 0x00800001, 0x80800000, 0x80800001], np.uint32)
F32_FEW = np.concatenate([NEAR_TINY, F32[: len(F32) // 2 : 2], F32[len(F32) // 2 :: 3]])
S32 = np.array(
    [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 0x00FFFFFF,
     0x01000000, 0x01000001, 0x7FFFFFBF, 0x7FFFFFC0, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000, 0x80000001, 0x55555555,
     0xAAAAAAAA, 0xFFFF8000, 0xFFFFFF80, 0xFFFFFF7F, 0xFFFFFFFE, 0xFFFFFFFF],
    np.uint32,
)  # fmt: skip
SHIFTS = np.array(
    [0, 1, 5, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 127, 128, 255, 256, 257, 288, 0x80000000, 0xFFFFFFFF], np.uint32
)
BYTES = np.array([0, 1, 5, 15, 16, 31, 32, 33, 40, 63, 64, 65, 127, 128, 255], np.uint32)  # what bfe, bfi, fns define
S64 = np.concatenate([S32.astype(np.uint64), S32.astype(np.uint64) << np.uint64(32), ~S32.astype(np.uint64)])
with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
    _WIDENED = F32.view(np.float32).astype(np.float64).view(np.uint64)
F64 = np.concatenate(
    [
        _WIDENED,
        np.array([1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000001], np.uint64),
        np.array([0x3FF0000010000000, 0x3FF0000030000000, 0x3FF0000010000001, 0x380FFFFFE0000000], np.uint64),
    ]
)
_H = np.array(
    [0, 1, 0x3FF, 0x400, 0x3800, 0x3C00, 0x3C01, 0x3E00, 0x4000, 0x5BFF, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7F80],
    np.uint16,
)
_B = np.array(
    [0, 1, 0x7F, 0x80, 0x3F00, 0x3F80, 0x3F81, 0x3FC0, 0x4000, 0x43E0, 0x7F7F, 0x7F80, 0x7F81, 0x7FC0, 0x7FFF],
    np.uint16,
)
F16 = np.concatenate([_H, _H | np.uint16(0x8000)])
BF16 = np.concatenate([_B, _B | np.uint16(0x8000)])

EDGES: dict[str, Array] = {
    "f32": F32, "s32": S32, "shift": SHIFTS, "byte": BYTES,
    "five": np.arange(32, dtype=np.uint32),
    "few": np.array([0, 1, 2, 3, 31, 32, 0xFFFFFFFF, 0xFFFFFFFE], np.uint32),
    "s64": S64, "f64": F64, "f16": F16, "bf16": BF16,
    "f16x2": (F16.astype(np.uint32) | np.roll(F16, 7).astype(np.uint32) << 16),
    "bf16x2": (BF16.astype(np.uint32) | np.roll(BF16, 7).astype(np.uint32) << 16),
    "b16": S32.astype(np.uint16), "e8x2": np.zeros(0, np.uint16), "member": np.array([0xFFFFFFFF], np.uint32),
}  # fmt: skip
FEW: dict[str, Array] = {**EDGES, "f32": F32_FEW, "f64": F64[::3], "s64": S64[::2]}


def random_bits(kind: str, n: int, salt: int) -> Array:
    """Hashed patterns; half of the f32 have a moderate exponent, where roundings differ and results do not overflow."""
    dtype = EDGES[kind].dtype
    if kind in ("shift", "byte", "five"):
        return hashed32(n, salt) % np.uint32(32 if kind == "five" else 80)
    if kind == "few":
        return hashed32(n, salt) % np.uint32(41) - np.uint32(20)
    if kind == "member":
        return np.full(n, 0xFFFFFFFF, np.uint32)
    if kind == "e8x2":
        low = np.arange(n, dtype=np.uint32) & np.uint32(0xFF)
        return (low | (low * np.uint32(0x9D00) + np.uint32(0x3100)) & np.uint32(0xFF00)).astype(np.uint16)
    if dtype.itemsize == 8:
        bits = hashed(n, salt)
        if kind == "f64":
            narrow = bits & np.uint64(0x800FFFFFFFFFFFFF) | (np.uint64(1003) + bits % np.uint64(40)) << np.uint64(52)
            bits = np.where(np.arange(n) % 2 == 0, narrow, bits)
        return bits
    wide = hashed32(n, salt)
    if kind == "f32":
        narrow32 = wide & np.uint32(0x807FFFFF) | (
            np.uint32(115) + hashed32(n, salt + 77) % np.uint32(24)
        ) << np.uint32(23)
        wide = np.where(np.arange(n) % 2 == 0, narrow32, wide).astype(np.uint32)
    return wide.astype(dtype) if dtype.itemsize == 4 else (wide >> np.uint32(16)).astype(dtype)


def operands(kinds: tuple[str, ...], n: int, salt: int) -> list[Array]:
    """n elements of each operand: edges against edges (sampled when there are too many), then hashed bits."""
    if len(kinds) == 1:
        edge = [EDGES[kinds[0]][:n]]
    else:
        tables = [FEW[k] for k in kinds]
        total = int(np.prod([max(len(t), 1) for t in tables]))
        count = min(total, n * 2 // 3)
        index = np.arange(count, dtype=np.uint64)
        if count < total:
            index = hashed(count, salt + 5) % np.uint64(total)
        edge = []
        for t in tables:
            size = np.uint64(max(len(t), 1))
            edge.append(t[index % size] if len(t) else random_bits(kinds[len(edge)], count, salt))
            index = index // size
    have = len(edge[0])
    return [
        np.concatenate([e, random_bits(k, n - have, salt + 11 * i)])
        for i, (e, k) in enumerate(zip(edge, kinds, strict=True))
    ]
