"""What a tensor core's f32 sums do, fitted to the results of sum_wgmma: python -m tests.probes.sums GPU.npz

The model: the accumulator and a group of exact products are aligned to the largest exponent among them, each truncated
toward zero `fraction` bits below it, added as integers, and the sum is truncated to f32 (or to `kept` bits). A denormal
has the exponent of its format's smallest normal number. Sums that are denormals of f32 are not modelled here.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tests.probes.case import Array, Case, In
from tests.probes.catalogue import cases
from tests.probes.store import load

_FORMATS = {"bf16": (2, 7, 127, 8), "f16": (2, 10, 15, 5), "tf32": (4, 23, 127, 8), "e4m3": (1, 3, 7, 4)}


def decode(bits: Array, dtype: str) -> tuple[Array, Array]:
    """Signed whole significands and exponents: value = m * 2^e. Infinities and NaN are not taken."""
    _, mantissa, bias, width = _FORMATS[dtype]
    b = bits.astype(np.int64)
    e = b >> mantissa & (1 << width) - 1
    fraction = b & (1 << mantissa) - 1
    m = np.where(e == 0, fraction, fraction | 1 << mantissa)
    return np.where(b >> (mantissa + width) & 1, -m, m), np.maximum(e, 1) - bias - mantissa


def wgmma_operands(case: Case, dtype: str) -> tuple[Array, Array, Array]:
    """A [64, k], B [8, k], C [64, 8] bits of an unswizzled K-major sum probe."""
    size = _FORMATS[dtype][0]
    per = 16 // size
    smem = case.args[0].data.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[size])  # type: ignore[union-attr]
    k = np.arange(2 * per)
    at = (k // per) * 128 // size + k % per

    def rows(n: int, base: int) -> Array:
        r = np.arange(n)[:, None]
        return smem[base // size + (r // 8) * 256 // size + (r % 8) * 16 // size + at]

    c = next(a for a in case.args[5:] if isinstance(a, In)).data
    return rows(64, 0), rows(8, smem.nbytes // 2), fragment_to_tile(c)


def fragment_to_tile(words: Array) -> Array:
    """D of m64n8 (PTX ISA 9.7.15.5.1.1): 4 words a thread."""
    t, i = np.divmod(np.arange(512), 4)
    tile = np.zeros((64, 8), np.uint32)
    tile[16 * (t // 32) + t % 32 // 4 + 8 * (i // 2), t % 4 * 2 + i % 2] = words
    return tile


def truncated_sum(a: Array, b: Array, c: Array, dtype: str, fraction: int, group: int, kept: int = 24) -> Array:
    ma, ea = decode(a, dtype)
    mb, eb = decode(b, dtype)
    unit = 2 * _FORMATS[dtype][1]  # product exponents are those of the factors, not normalised
    acc = c.copy()
    for start in range(0, a.shape[1], group):
        s = slice(start, start + group)
        m = ma[:, None, s] * mb[None, :, s]
        e = ea[:, None, s] + eb[None, :, s]
        bits = acc.astype(np.int64)
        stored = bits >> 23 & 255
        ec = np.maximum(stored, 1) - 127
        mc = (bits & 0x7FFFFF | np.where(stored > 0, 0x800000, 0)) * np.where(bits >> 31, -1, 1)
        top = np.maximum(np.where(m != 0, e + unit, -999).max(2), np.where(mc != 0, ec, -999))
        low = top - fraction
        total = _shift(m, e - low[..., None]).sum(2) + _shift(mc, ec - 23 - low)
        acc = _to_f32(total, low, kept)
    return acc


def _shift(m: Array, by: Array) -> Array:
    """m * 2^by toward zero."""
    size = np.abs(m)
    moved = np.where(by >= 0, size << np.clip(by, 0, 40), size >> np.clip(-by, 0, 63))
    signed: Array = np.where(m < 0, -moved, moved)
    return signed


def _to_f32(total: Array, low: Array, kept: int) -> Array:
    size = np.abs(total)
    length = np.where(size > 0, np.floor(np.log2(np.maximum(size, 1).astype(np.longdouble))).astype(np.int64) + 1, 0)
    drop = np.maximum(length - kept, 0)
    size = size >> drop << drop
    mantissa = np.where(length > 24, size >> np.maximum(length - 24, 0), size << np.maximum(24 - length, 0))
    word = (low + length - 1 + 127) << 23 | mantissa & 0x7FFFFF
    return np.where(size == 0, 0, word | np.where(total < 0, 1 << 31, 0)).astype(np.uint32)


def fit(gpu: Path) -> None:
    results, _ = load(gpu)
    for dtype in _FORMATS:
        probes = [c for c in cases("matrix") if c.name.startswith(f"matrix/sum_wgmma_{dtype}/")]
        size = _FORMATS[dtype][0]
        scores = []
        for fraction in range(11, 29):
            for group in sorted({32 // size, 16 // size, 8 // size}):
                for kept in (24, fraction + 1):
                    right = 0
                    for case in probes:
                        got = fragment_to_tile(results[case.name].outputs[0].view(np.uint32))
                        a, b, c = wgmma_operands(case, dtype)
                        right += int((truncated_sum(a, b, c, dtype, fraction, group, min(kept, 24)) == got).sum())
                    scores.append((right, fraction, group, min(kept, 24)))
        total = 512 * len(probes)
        for right, fraction, group, kept in sorted(set(scores), reverse=True)[:3]:
            print(f"{dtype}: {right}/{total} with {fraction} fraction bits, groups of {group}, {kept} bits kept")


if __name__ == "__main__":
    fit(Path(sys.argv[1]))
