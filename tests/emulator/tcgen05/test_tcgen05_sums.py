"""The order in which tcgen05.mma adds, to the bit, with the host's matrix instructions and without.

The model does one product at a time: fused in f32, those of even k one after the other, those of odd k, the two sums
together, and that onto D. Every NaN is 0x7FFFFFFF.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha.emulator import _core
from tests.emulator import tcgen05_rig as rig
from tests.emulator.tcgen05.test_tcgen05_mma import B_AT, SIZE, halves, mma_text
from tests.emulator.tcgen05_numbers import SMALL, d_cells, instruction, k_major, mn_major, pack, small_float

Floats = NDArray[np.float64]
K128 = k_major(128)
WAYS = ["vectors", *(["tiles"] if _core.host_has_tiles() else [])]


@contextmanager
def way(name: str) -> Iterator[None]:
    _core.allow_host_tiles(name == "tiles")
    try:
        yield
    finally:
        _core.allow_host_tiles(True)


def fused(x: Floats, y: Floats, sums: NDArray[np.float32]) -> NDArray[np.float32]:
    """x y + sums, rounded once: the sum in f64 is rounded to odd, which leaves the rounding to f32 open. Products of
    numbers of 11 bits and less are exact in f64."""
    product, own = x * y, sums.astype(np.float64)
    total = product + own
    back = total - own
    error = (product - back) + (own - (total - back))
    inexact = np.isfinite(total) & (error != 0) & (total.view(np.int64) % 2 == 0)
    return np.where(inexact, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total).astype(np.float32)


def model(a: Floats, b: Floats, d: NDArray[np.float32]) -> NDArray[np.float32]:
    """One MMA: a [m, k], b [n, k], d [m, n]."""
    with np.errstate(all="ignore"):
        parts = np.zeros((2, *d.shape), np.float32)
        for k in range(a.shape[1]):
            parts[k % 2] = fused(a[:, k, None], b[None, :, k], parts[k % 2])
        return d + (parts[0] + parts[1])


def numbers_of(bits: NDArray[np.integer], fmt: str) -> Floats:
    if fmt == "f16":
        return bits.astype(np.uint16).view(np.float16).astype(np.float64)
    if fmt in ("bf16", "tf32"):
        with np.errstate(invalid="ignore"):
            return (bits.astype(np.uint32) << (16 if fmt == "bf16" else 0)).view(np.float32).astype(np.float64)
    values = small_float(bits, fmt)
    if fmt == "e4m3":
        values[bits & 0x7F == 0x7F] = np.nan
    if fmt == "e5m2":
        values[bits & 0x7F > 0x7C] = np.nan
        values[bits & 0x7F == 0x7C] = np.copysign(np.inf, values[bits & 0x7F == 0x7C])
    return values


# Exponents of bf16 and tf32, and of D, as f32 stores them. Where the lowest of A and B add to less than 142, sums may
# be denormal.
@dataclass(frozen=True)
class Range:
    a: tuple[int, int]
    b: tuple[int, int]
    d: tuple[int, int] | None


RANGES = {
    "usual": Range((117, 128), (117, 128), (110, 132)),
    "wide": Range((80, 150), (80, 150), (30, 200)),
    "all alike": Range((127, 127), (127, 127), (127, 131)),
    "no smaller without denormals": Range((72, 76), (70, 76), (24, 40)),
    "a few sums denormal": Range((70, 70), (71, 71), None),
    "sums denormal": Range((66, 70), (66, 70), None),
    "denormal operands": Range((0, 0), (150, 200), None),
    "denormal D": Range((71, 72), (71, 72), (0, 24)),
    "no larger without overflow": Range((180, 185), (180, 186), (240, 252)),
    "sums that overflow": Range((188, 194), (188, 194), (240, 250)),
    "D that overflows": Range((180, 185), (180, 186), (254, 254)),
    "infinities and NaN": Range((120, 255), (120, 255), (120, 255)),
    "infinities and NaN in A": Range((120, 255), (80, 100), (120, 130)),
    "infinities and NaN in D": Range((117, 128), (117, 128), (120, 255)),
}


def f32_bits(rng: np.random.Generator, shape: tuple[int, ...], exponents: tuple[int, int]) -> NDArray[np.uint32]:
    """Random numbers, one of 16 zero, of either sign."""
    low, high = exponents
    bits = rng.integers(0, 1 << 23, shape) | rng.integers(low, high + 1, shape) << 23
    bits = np.where(rng.integers(0, 16, shape) == 0, 0, bits) | rng.integers(0, 2, shape) << 31
    if high == 255:  # only some are special, and some are infinite
        special = rng.integers(0, 64, shape)
        bits = np.where(special == 0, bits | 0x7F80_0000, np.where((bits >> 23 & 255) == 255, bits & 0xBFFF_FFFF, bits))
        bits = np.where((special == 0) & (rng.integers(0, 2, shape) == 0), bits & 0xFF80_0000, bits)
    return bits.astype(np.uint32)


def operand(
    rng: np.random.Generator, fmt: str, rows: int, exponents: tuple[int, int]
) -> tuple[NDArray[np.uint8], Floats]:
    """(rows of 32 bytes as shared memory holds them, their numbers)"""
    special = exponents[1] == 255
    if fmt in SMALL:
        width = 1 + sum(SMALL[fmt][1:3])
        codes = rng.integers(0, 2**width, (rows, 32))
        if not special:
            codes[~np.isfinite(numbers_of(codes, fmt))] = 0
        return pack(codes, width), numbers_of(codes, fmt)
    if fmt == "f16":
        half = rng.integers(0, 1 << 16, (rows, 16)).astype(np.uint16)
        if not special:
            half[half & 0x7C00 == 0x7C00] = 0
        return half.view(np.uint8).reshape(rows, 32), numbers_of(half, fmt)
    bits = f32_bits(rng, (rows, 8 if fmt == "tf32" else 16), exponents)
    if fmt == "tf32":
        bits &= ~np.uint32(0x1FFF)
        return bits.view(np.uint8).reshape(rows, 32), numbers_of(bits, fmt)
    top = (bits >> 16).astype(np.uint16)
    return top.view(np.uint8).reshape(rows, 32), numbers_of(top, fmt)


def expect(got: NDArray[np.uint32], want: NDArray[np.float32]) -> None:
    np.testing.assert_array_equal(got, np.where(np.isnan(want), 0x7FFF_FFFF, want.view(np.uint32)))


PAIRS = [
    ("f16", "bf16", "bf16"), ("f16", "f16", "f16"), ("f16", "f16", "bf16"), ("tf32", "tf32", "tf32"),
    ("f8f6f4", "e4m3", "e4m3"), ("f8f6f4", "e5m2", "e4m3"), ("f8f6f4", "e2m3", "e5m2"), ("f8f6f4", "e3m2", "e2m1"),
]  # fmt: skip


def run(name: str, kind: str, fmts: tuple[str, str], numbers: str, steps: int = 3, n: int = 80) -> None:
    """`steps` MMAs onto one D of 128 x n, whose K follow one another in rows of 128 bytes, compared with the model."""
    rng = np.random.default_rng(7)
    ranges = RANGES[numbers]
    a = [operand(rng, fmts[0], 128, ranges.a) for _ in range(steps)]
    b = [operand(rng, fmts[1], n, ranges.b) for _ in range(steps)]
    d = f32_bits(rng, (128, n), ranges.d) if ranges.d else np.zeros((128, n), np.uint32)
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, 32 : 32 + n] = d
    shared = K128.place(np.hstack([x for x, _ in a]), B_AT) + K128.place(np.hstack([x for x, _ in b]), SIZE - B_AT)
    issue = "\n".join(
        mma_text(
            f".cta_group::1.kind::{kind}", 32, K128.descriptor(rig.BASE + 32 * k),
            K128.descriptor(rig.BASE + B_AT + 32 * k), instruction(kind, 128, n, *fmts),
        )
        for k in range(steps)
    )  # fmt: skip
    with way(name):
        got = rig.run(issue, shared, tmem).tmem[:, 32 : 32 + n]
    want = d.view(np.float32)
    for (_, x), (_, y) in zip(a, b, strict=True):
        want = model(x, y, want)
    expect(got, want)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("numbers", RANGES)
def test_numbers_of_bf16(name: str, numbers: str) -> None:
    run(name, "f16", ("bf16", "bf16"), numbers)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize(("kind", "a", "b"), PAIRS)
@pytest.mark.parametrize("numbers", ["usual", "denormal D", "infinities and NaN"])
def test_kinds(name: str, kind: str, a: str, b: str, numbers: str) -> None:
    run(name, kind, (a, b), numbers)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("n", [16, 24, 32, 48, 64, 112, 256])
@pytest.mark.parametrize("m", [64, 128])
def test_widths(name: str, m: int, n: int) -> None:
    if m == 64 or n % 16 == 0:
        shape(name, m, n)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("m", [128, 256])
@pytest.mark.parametrize("fmt", ["bf16", "e5m2"])
def test_pairs_of_ctas(name: str, m: int, fmt: str) -> None:
    shape(name, m, 96, fmt, pair=True)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("m", [32, 64, 128])
def test_weight_stationary(name: str, m: int) -> None:
    shape(name, m, 128, ws=True)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("fmt", ["bf16", "e4m3"])
@pytest.mark.parametrize("swizzle", [16, 32, 64, 128])
def test_operands_along_mn(name: str, fmt: str, swizzle: int) -> None:
    shape(name, 128, 64, fmt, swizzle=swizzle)


def shape(
    name: str, m: int, n: int, fmt: str = "bf16", *, ws: bool = False, pair: bool = False, swizzle: int | None = None
) -> None:
    """Two MMAs with the same operands, of which the first takes D as zero; its numbers are special in two rows."""
    rng = np.random.default_rng(8)
    element = 2 if fmt == "bf16" else 1
    (a, x), (b, y) = (operand(rng, fmt, rows, RANGES["usual"].a) for rows in (m, n))
    if fmt == "bf16":
        a.view(np.uint16)[m // 2 : m // 2 + 2, 3] = 0x7F80, 0x0001
        x[m // 2 : m // 2 + 2, 3] = np.inf, 2.0**-133
    layout = K128 if swizzle is None else mn_major(swizzle, element, 128)
    along = int(swizzle is not None)
    kind = "f16" if fmt == "bf16" else "f8f6f4"
    cells = d_cells(m, n, ws=ws, pair=pair)
    text = [
        mma_text(
            f"{'.ws' if ws else ''}.cta_group::{1 + pair}.kind::{kind}", 64, layout.descriptor(rig.BASE),
            layout.descriptor(rig.BASE + B_AT), instruction(kind, m, n, fmt, fmt, a_mn=along, b_mn=along),
            accumulate=accumulate,
        )
        for accumulate in (False, True)
    ]  # fmt: skip
    shared = [
        layout.place(p, B_AT) + layout.place(q, SIZE - B_AT)
        for p, q in zip(halves(a, pair), halves(b, pair), strict=True)
    ]
    with way(name):
        outcome = rig.run("\n".join(text), shared, pair=pair)
    tmem = outcome.tmem if pair else outcome.tmem[None]
    once = model(x, y, np.zeros((m, n), np.float32))
    expect(tmem[cells[..., 0], cells[..., 1], cells[..., 2] + 64], model(x, y, once))


@pytest.mark.parametrize("name", WAYS)
def test_lanes_that_are_disabled_keep_what_they_hold(name: str) -> None:
    rng = np.random.default_rng(9)
    (a, x), (b, y) = (operand(rng, "bf16", rows, RANGES["usual"].a) for rows in (128, 64))
    masks = (0, 0x0000_0100, 0xFFFF_0000, 0xFFFF_FFFF)
    registers = "".join(f"mov.b32 %r{11 + k}, {mask};\n" for k, mask in enumerate(masks))
    issue = registers + mma_text(
        ".cta_group::1.kind::f16", 0, K128.descriptor(rig.BASE), K128.descriptor(rig.BASE + B_AT),
        instruction("f16", 128, 64, "bf16", "bf16"), tail="{%r11, %r12, %r13, %r14}, %p3", accumulate=False,
    )  # fmt: skip
    with way(name):
        got = rig.run(issue, K128.place(a, B_AT) + K128.place(b, SIZE - B_AT)).tmem[:, :64]
    off = np.array([masks[r // 32] >> r % 32 & 1 for r in range(128)], bool)
    want = model(x, y, np.zeros((128, 64), np.float32))
    want[off] = 0
    expect(got, want)
