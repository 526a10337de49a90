"""tcgen05.mma against float64 oracles built from the operands' bytes: kinds, shapes, data paths, layouts, options."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator import tcgen05_rig as rig
from tests.emulator.tcgen05_numbers import (
    KINDS,
    Layout,
    containers,
    d_cells,
    instruction,
    k_major,
    mn_major,
    random_operand,
    small_float,
)

A_AT, B_AT, SIZE = 0, 65536, 131072
K128 = k_major(128)


def registers(*values: tuple[str, int]) -> str:
    return "\n".join(f"mov.b{'64' if name.startswith('%rd') else '32'} {name}, {value};" for name, value in values)


def mma_text(
    mods: str, d: int, a: int, b: int, idesc: int, *, a_tmem: bool = False, tail: str = "%p3", accumulate=True
):
    a_operand = "[%r9]" if a_tmem else "%rd1"
    return (
        registers(("%r8", d), ("%r9", a if a_tmem else 0), ("%rd1", 0 if a_tmem else a), ("%rd2", b), ("%r10", idesc))
        + f"\nsetp.{'eq' if accumulate else 'ne'}.u32 %p3, %r8, %r8;\n"
        + f"tcgen05.mma{mods} [%r8], {a_operand}, %rd2, %r10, {tail};"
    )


def images(a_rows, b_rows, a_layout: Layout, b_layout: Layout) -> bytes:
    return a_layout.place(a_rows, B_AT) + b_layout.place(b_rows, SIZE - B_AT)


def f32_words(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).view(np.uint32)


def start_d(rng, m, n):
    return rng.integers(-64, 64, (m, n)).astype(np.float64) / 8


def expect(outcome, cells, column, want, tolerance=2e-6):
    """D, whose cells start at `column`, is `want` to f32 accuracy."""
    tmem = outcome.tmem if outcome.tmem.ndim == 3 else outcome.tmem[None]
    got = tmem[cells[..., 0], cells[..., 1], cells[..., 2] + column].view(np.float32)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())


# Kinds

PLAIN = [
    ("f16", "f16", "f16"),
    ("f16", "bf16", "bf16"),
    ("f16", "f16", "bf16"),
    ("tf32", "tf32", "tf32"),
    *[
        ("f8f6f4", a, b)
        for a, b in (("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m3", "e5m2"), ("e3m2", "e2m1"), ("e2m1", "e2m3"))
    ],
]


@pytest.mark.parametrize(("kind", "a_type", "b_type"), PLAIN)
@pytest.mark.parametrize("accumulate", [False, True])
def test_kinds_with_an_f32_accumulator(kind, a_type, b_type, accumulate):
    rng = np.random.default_rng(1)
    m, n, column = 128, 48, 32
    (a, av), (b, bv) = random_operand(rng, a_type, m), random_operand(rng, b_type, n)
    d = start_d(rng, m, n)
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, column : column + n] = f32_words(d)
    issue = mma_text(
        f".cta_group::1.kind::{kind}",
        column,
        K128.descriptor(rig.BASE + A_AT),
        K128.descriptor(rig.BASE + B_AT),
        instruction(kind, m, n, a_type, b_type),
        accumulate=accumulate,
    )
    outcome = rig.run(issue, images(a, b, K128, K128), tmem)
    assert outcome.rules == []
    assert av.shape[1] == KINDS[kind]
    expect(outcome, d_cells(m, n), column, av @ bv.T + (d if accumulate else 0))
    outcome.tmem[:, column : column + n] = 0
    assert not outcome.tmem.any()


def test_an_f16_accumulator_rounds_to_half_in_the_low_half_of_a_word():
    rng = np.random.default_rng(2)
    (a, av), (b, bv) = random_operand(rng, "f16", 128), random_operand(rng, "f16", 64)
    d = start_d(rng, 128, 64).astype(np.float16)
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, :64] = d.view(np.uint16)
    issue = mma_text(
        ".cta_group::1.kind::f16", 0, K128.descriptor(rig.BASE), K128.descriptor(rig.BASE + B_AT),
        instruction("f16", 128, 64, "f16", "f16", "f16"),
    )  # fmt: skip
    outcome = rig.run(issue, images(a, b, K128, K128), tmem)
    want = av @ bv.T + d.astype(np.float64)
    assert (outcome.tmem[:, :64] >> 16 == 0).all()
    got = outcome.tmem[:, :64].astype(np.uint16).view(np.float16)
    np.testing.assert_allclose(got.astype(np.float64), want, atol=np.spacing(np.float16(16)).astype(float))
    exact = want.astype(np.float16)
    assert (got == exact).mean() > 0.99  # but for sums that lie on a rounding boundary


@pytest.mark.parametrize(("a_type", "b_type"), [("u8", "u8"), ("s8", "s8"), ("u8", "s8"), ("s8", "u8")])
@pytest.mark.parametrize("saturate", [0, 1])
def test_kind_i8_wraps_or_saturates(a_type, b_type, saturate):
    rng = np.random.default_rng(3)
    (a, av), (b, bv) = random_operand(rng, a_type, 128), random_operand(rng, b_type, 32)
    d = rng.choice([2**31 - 1, -(2**31), 0, 12345], (128, 32))
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, :32] = d.astype(np.int32).view(np.uint32)
    issue = mma_text(
        ".cta_group::1.kind::i8", 0, K128.descriptor(rig.BASE), K128.descriptor(rig.BASE + B_AT),
        instruction("i8", 128, 32, a_type, b_type, "s32", saturate=saturate),
    )  # fmt: skip
    outcome = rig.run(issue, images(a, b, K128, K128), tmem)
    total = (av @ bv.T).astype(np.int64) + d
    want = np.clip(total, -(2**31), 2**31 - 1) if saturate else (total + 2**31) % 2**32 - 2**31
    assert (outcome.tmem[:, :32].view(np.int32) == want).all()
    assert (total != np.clip(total, -(2**31), 2**31 - 1)).any()


def scale_columns(codes: np.ndarray, first_byte: int) -> np.ndarray:
    """Scales [rows, s] -> tensor memory columns [128, ceil(rows/32)], in each partition of 32 lanes."""
    rows, s = codes.shape
    words = np.zeros((128, -(-rows // 32)), np.uint32)
    for r in range(rows):
        for k in range(s):
            words[r % 32 :: 32, r // 32] |= np.uint32(codes[r, k]) << np.uint32(8 * (first_byte + k))
    return words


SCALED = [
    ("mxf8f6f4", ".block_scale", 1, "e4m3", "e5m2", 1, 0, 0),
    ("mxf8f6f4", ".block_scale.scale_vec::1X", 1, "e2m1", "e3m2", 1, 3, 1),
    ("mxf8f6f4", ".block_scale.block32", 1, "e2m3", "e4m3", 1, 2, 3),
    ("mxf4", ".block_scale", 2, "fp4", "fp4", 1, 2, 0),
    ("mxf4", ".block_scale.scale_vec::2X", 2, "fp4", "fp4", 1, 0, 2),
    ("mxf4nvf4", ".block_scale.block32", 2, "fp4", "fp4", 1, 2, 2),
    ("mxf4nvf4", ".block_scale.scale_vec::4X", 4, "fp4", "fp4", 0, 0, 0),
    ("mxf4nvf4", ".block_scale.block16", 4, "fp4", "fp4", 1, 0, 0),
]


@pytest.mark.parametrize(("kind", "size", "s", "a_type", "b_type", "e8m0", "id_a", "id_b"), SCALED)
@pytest.mark.parametrize("n", [40, 256])
def test_block_scaled_kinds(kind, size, s, a_type, b_type, e8m0, id_a, id_b, n):
    rng = np.random.default_rng(4)
    (a, av), (b, bv) = random_operand(rng, a_type, 128), random_operand(rng, b_type, n)
    low, high = (120, 134) if e8m0 else (0, 0x7F)
    sa, sb = rng.integers(low, high, (128, s)), rng.integers(low, high, (n, s))
    decode = (lambda x: 2.0 ** (x - 127)) if e8m0 else (lambda x: small_float(x, "e4m3"))
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, 300:304], tmem[:, 400 : 400 + -(-n // 32)] = scale_columns(sa, id_a), scale_columns(sb, id_b)
    issue = registers(("%r11", 300), ("%r12", 400 | id_b << 30)) + mma_text(
        f".cta_group::1.kind::{kind}{size}", 0, K128.descriptor(rig.BASE), K128.descriptor(rig.BASE + B_AT),
        instruction(kind, 128, n, a_type, b_type, e8m0=e8m0, id_a=id_a, id_b=id_b),
        tail="[%r11], [%r12], %p3", accumulate=False,
    )  # fmt: skip
    outcome = rig.run(issue, images(a, b, K128, K128), tmem)
    assert outcome.rules == []
    block = av.shape[1] // s
    want = (av * decode(sa).repeat(block, 1)) @ (bv * decode(sb).repeat(block, 1)).T
    expect(outcome, d_cells(128, n), 0, want)


def test_a_scale_of_nan_poisons_its_row():
    rng = np.random.default_rng(5)
    (a, _), (b, _) = random_operand(rng, "e4m3", 128), random_operand(rng, "e4m3", 32)
    sa = np.full((128, 1), 127)
    sa[77] = 255
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, 300:304], tmem[:, 400:401] = scale_columns(sa, 0), scale_columns(np.full((32, 1), 127), 0)
    issue = registers(("%r11", 300), ("%r12", 400)) + mma_text(
        ".cta_group::1.kind::mxf8f6f4.block_scale", 0, K128.descriptor(rig.BASE), K128.descriptor(rig.BASE + B_AT),
        instruction("mxf8f6f4", 128, 32, "e4m3", "e4m3"), tail="[%r11], [%r12], %p3", accumulate=False,
    )  # fmt: skip
    got = np.isnan(rig.run(issue, images(a, b, K128, K128), tmem).tmem[:, :32].view(np.float32))
    assert got[77].all()
    assert not np.delete(got, 77, 0).any()


# Shapes and data paths

SHAPES = [
    (64, 8, False, False),
    (64, 256, False, False),
    (128, 8, False, False),
    (128, 256, False, False),
    (32, 64, True, False),
    (32, 256, True, False),
    (64, 128, True, False),
    (128, 64, True, False),
    (128, 32, False, True),
    (128, 256, False, True),
    (256, 16, False, True),
    (256, 256, False, True),
]


def halves(rows: np.ndarray, pair: bool) -> list[np.ndarray]:
    return np.split(rows, 2) if pair else [rows]


# Only half a data path may start at lane 16.
@pytest.mark.parametrize(
    ("m", "n", "ws", "pair", "lane"),
    [(*shape, 0) for shape in SHAPES] + [(*shape, 16) for shape in SHAPES if shape[0] == 64 and not shape[2]],
)
def test_shapes(m, n, ws, pair, lane):
    rng = np.random.default_rng(6)
    (a, av), (b, bv) = random_operand(rng, "bf16", m), random_operand(rng, "bf16", n)
    cells, d = d_cells(m, n, ws=ws, pair=pair, lane=lane), start_d(rng, m, n)
    tmem = np.zeros((2 if pair else 1, 128, 512), np.uint32)
    tmem[cells[..., 0], cells[..., 1], cells[..., 2] + 64] = f32_words(d)
    before = tmem.copy()
    issue = mma_text(
        f"{'.ws' if ws else ''}.cta_group::{1 + pair}.kind::f16", 64 | lane << 16,
        K128.descriptor(rig.BASE), K128.descriptor(rig.BASE + B_AT), instruction("f16", m, n, "bf16", "bf16"),
    )  # fmt: skip
    shared = [images(x, y, K128, K128) for x, y in zip(halves(a, pair), halves(b, pair), strict=True)]
    outcome = rig.run(issue, shared, tmem, pair=pair)
    # The rig's pair meets through an mbarrier, with no cluster barrier behind its initialisation.
    assert set(outcome.rules) <= ({"mbarrier-race"} if pair else set())
    expect(outcome, cells, 64, av @ bv.T + d)
    after = outcome.tmem if pair else outcome.tmem[None]
    for x in (after, before):
        x[cells[..., 0], cells[..., 1], cells[..., 2] + 64] = 0
    assert (after == before).all()


@pytest.mark.parametrize(("m", "n", "ws", "pair"), [s for s in SHAPES if s[1] in (64, 128, 256)])
@pytest.mark.parametrize(("kind", "name"), [("f16", "f16"), ("tf32", "tf32"), ("f8f6f4", "e5m2"), ("i8", "s8")])
def test_a_from_tensor_memory(m, n, ws, pair, kind, name):
    """Each lane of the data path brings its own row of A: in the layouts of several banks a row may differ from bank to
    bank, and serves the bank's columns of D."""
    rng = np.random.default_rng(7)
    cells = d_cells(m, n, ws=ws, pair=pair)
    ctas = 2 if pair else 1
    tmem = np.zeros((ctas, 128, 512), np.uint32)
    a, av = random_operand(rng, name, ctas * 128)
    tmem[:, :, 300:308] = a.view(np.uint32).reshape(ctas, 128, 8)
    av = av.reshape(ctas, 128, -1)
    b, bv = random_operand(rng, name, n)
    want = np.einsum("mnk,nk->mn", av[cells[..., 0], cells[..., 1]], bv)
    issue = mma_text(
        f"{'.ws' if ws else ''}.cta_group::{1 + pair}.kind::{kind}", 0, 300, K128.descriptor(rig.BASE + B_AT),
        instruction(kind, m, n, name, name, "s32" if kind == "i8" else "f32"), a_tmem=True, accumulate=False,
    )  # fmt: skip
    shared = [images(a[:0], y, K128, K128) for y in halves(b, pair)]
    outcome = rig.run(issue, shared, tmem, pair=pair)
    if kind == "i8":
        got = (outcome.tmem if pair else outcome.tmem[None])[cells[..., 0], cells[..., 1], cells[..., 2]]
        assert (got.view(np.int32) == want).all()
    else:
        expect(outcome, cells, 0, want)


@pytest.mark.parametrize("name", ["e2m3", "e3m2", "e2m1"])
def test_narrow_a_from_tensor_memory_is_in_byte_containers(name):
    rng = np.random.default_rng(8)
    codes = rng.integers(0, 16 if name == "e2m1" else 64, (128, 32))
    b, bv = random_operand(rng, "e4m3", 64)
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, 300:308] = containers(codes, name).view(np.uint32)
    issue = mma_text(
        ".cta_group::1.kind::f8f6f4", 0, 300, K128.descriptor(rig.BASE + B_AT),
        instruction("f8f6f4", 128, 64, name, "e4m3"), a_tmem=True, accumulate=False,
    )  # fmt: skip
    outcome = rig.run(issue, images(b[:0], b, K128, K128), tmem)
    expect(outcome, d_cells(128, 64), 0, small_float(codes, name) @ bv.T)


# Layouts in shared memory

K_LAYOUTS = [k_major(0), k_major(32), k_major(64), k_major(64, 32), K128, *[k_major(128, 32 * k) for k in (1, 2, 3)]]


@pytest.mark.parametrize("layout", K_LAYOUTS, ids=lambda x: f"{x.span}+{x.k_offset}")
@pytest.mark.parametrize(("kind", "name"), [("f16", "bf16"), ("tf32", "tf32"), ("f8f6f4", "e4m3"), ("f8f6f4", "e3m2")])
def test_k_major_layouts(layout, kind, name):
    rng = np.random.default_rng(9)
    (a, av), (b, bv) = random_operand(rng, name, 128), random_operand(rng, name, 64)
    issue = mma_text(
        f".cta_group::1.kind::{kind}", 0, layout.descriptor(rig.BASE), layout.descriptor(rig.BASE + B_AT),
        instruction(kind, 128, 64, name, name), accumulate=False,
    )  # fmt: skip
    outcome = rig.run(issue, images(a, b, layout, layout))
    assert outcome.rules == []
    expect(outcome, d_cells(128, 64), 0, av @ bv.T)


MN = [
    *[("f16", "bf16", s, 2) for s in (16, 32, 64, 128)],
    *[("f8f6f4", "e4m3", s, 1) for s in (16, 32, 64, 128)],
    *[("i8", "s8", s, 1) for s in (16, 32, 64, 128)],
    ("tf32", "tf32", 1, 4),
]


@pytest.mark.parametrize(("kind", "name", "swizzle", "element"), MN)
@pytest.mark.parametrize("both", [False, True])
def test_mn_major_layouts(kind, name, swizzle, element, both):
    rng = np.random.default_rng(10)
    (a, av), (b, bv) = random_operand(rng, name, 128), random_operand(rng, name, 64)
    layout = mn_major(swizzle, element, 128)
    a_layout = layout if both else K128
    issue = mma_text(
        f".cta_group::1.kind::{kind}", 0, a_layout.descriptor(rig.BASE), layout.descriptor(rig.BASE + B_AT),
        instruction(kind, 128, 64, name, name, "s32" if kind == "i8" else "f32", a_mn=int(both), b_mn=1),
        accumulate=False,
    )  # fmt: skip
    outcome = rig.run(issue, images(a, b, a_layout, layout))
    assert outcome.rules == []
    if kind == "i8":
        assert (outcome.tmem[:, :64].view(np.int32) == av @ bv.T).all()
    else:
        expect(outcome, d_cells(128, 64), 0, av @ bv.T)


def test_a_base_offset_moves_the_start_of_the_swizzle_pattern():
    """A pattern that starts 384 bytes into a 1024-byte block has base offset 3: its swizzle counts rows from there."""
    rng = np.random.default_rng(11)
    (a, av), (b, bv) = random_operand(rng, "f16", 128), random_operand(rng, "f16", 64)
    image = bytearray(images(a, b, K128, K128))
    image[384 : 384 + 128 * 128] = K128.place(a, 128 * 128)
    issue = mma_text(
        ".cta_group::1.kind::f16", 0, K128.descriptor(rig.BASE + 384) | 3 << 49, K128.descriptor(rig.BASE + B_AT),
        instruction("f16", 128, 64, "f16", "f16"), accumulate=False,
    )  # fmt: skip
    expect(rig.run(issue, bytes(image)), d_cells(128, 64), 0, av @ bv.T)


def test_a_base_offset_without_a_swizzle_says_nothing():
    rng = np.random.default_rng(11)
    (a, av), (b, bv) = random_operand(rng, "f16", 128), random_operand(rng, "f16", 64)
    plain = k_major(0)
    issue = mma_text(
        ".cta_group::1.kind::f16", 0, plain.descriptor(rig.BASE) | 4 << 49, plain.descriptor(rig.BASE + B_AT),
        instruction("f16", 128, 64, "f16", "f16"), accumulate=False,
    )  # fmt: skip
    expect(rig.run(issue, images(a, b, plain, plain)), d_cells(128, 64), 0, av @ bv.T)


def test_descriptor_addresses_wrap_at_18_bits():
    """A stride of 2^18 - 1024 bytes steps backwards by 1024."""
    rng = np.random.default_rng(12)
    (a, av), (b, bv) = random_operand(rng, "f16", 128), random_operand(rng, "f16", 64)
    backwards = K128.descriptor(rig.BASE + 15 * 1024) & ~(0x3FFF << 32) | ((1 << 18) - 1024 >> 4) << 32
    issue = mma_text(
        ".cta_group::1.kind::f16", 0, backwards, K128.descriptor(rig.BASE + B_AT),
        instruction("f16", 128, 64, "f16", "f16"), accumulate=False,
    )  # fmt: skip
    flipped = av.reshape(16, 8, 16)[::-1].reshape(128, 16)
    expect(rig.run(issue, images(a, b, K128, K128)), d_cells(128, 64), 0, flipped @ bv.T)
