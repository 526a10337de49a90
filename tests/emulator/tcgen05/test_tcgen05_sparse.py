"""tcgen05.mma.sp against float64 oracles: A stores half of each row, tensor memory says which half."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.emulator import tcgen05_rig as rig
from tests.emulator.tcgen05.test_tcgen05_mma import (
    B_AT,
    K128,
    SIZE,
    expect,
    f32_words,
    images,
    mma_text,
    registers,
    scale_columns,
    start_d,
)
from tests.emulator.tcgen05_numbers import (
    GROUPS,
    Layout,
    d_cells,
    instruction,
    k_major,
    metadata_words,
    mn_major,
    random_operand,
    random_pattern,
    small_float,
)

SPARSE, METADATA = 1 << 2, 320  # bit of the instruction descriptor; column


def sparse_text(mods: str, a: int, b: int, idesc: int, *, a_tmem=False, tail="%p3", accumulate=False, at=METADATA):
    """D at column 0, and A at column 300 where it is not a descriptor."""
    a_operand = "[%r9]" if a_tmem else "%rd1"
    return (
        registers(
            *(("%r8", 0), ("%r9", a if a_tmem else 0), ("%rd1", 0 if a_tmem else a), ("%rd2", b)),
            *(("%r10", idesc | SPARSE), ("%r13", at)),
        )
        + f"\nsetp.{'eq' if accumulate else 'ne'}.u32 %p3, %r8, %r8;\n"
        + f"tcgen05.mma{mods} [%r8], {a_operand}, %rd2, [%r13], %r10, {tail};"
    )


def scatter(stored: np.ndarray, along: np.ndarray) -> np.ndarray:
    """The rows with their zeros."""
    dense = np.zeros((len(stored), 2 * stored.shape[1]))
    np.put_along_axis(dense, along, stored, axis=1)
    return dense


def wide(rng: np.random.Generator, name: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """An operand with 64 bytes a row."""
    (b0, v0), (b1, v1) = random_operand(rng, name, rows), random_operand(rng, name, rows)
    return np.hstack([b0, b1]), np.hstack([v0, v1])


def descriptors(a: Layout, b: Layout) -> tuple[int, int]:
    return a.descriptor(rig.BASE), b.descriptor(rig.BASE + B_AT)


KINDS = [
    ("f16", "f16", "f16"),
    ("f16", "bf16", "f16"),
    ("tf32", "tf32", "tf32"),
    ("f8f6f4", "e4m3", "e5m2"),
    ("f8f6f4", "e2m1", "e3m2"),
]


@pytest.mark.parametrize(("kind", "a_type", "b_type"), KINDS)
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("n", [8, 200])
def test_kinds(kind, a_type, b_type, accumulate, n):
    rng = np.random.default_rng(20)
    (a, av), (b, bv) = random_operand(rng, a_type, 128), wide(rng, b_type, n)
    codes, along = random_pattern(rng, kind, 128)
    d, tmem = start_d(rng, 128, n), np.zeros((128, 512), np.uint32)
    tmem[:, :n] = f32_words(d)
    words = metadata_words(kind, codes)
    tmem[:, METADATA : METADATA + words.shape[1]] = words
    issue = sparse_text(
        f".sp.cta_group::1.kind::{kind}", *descriptors(K128, K128), instruction(kind, 128, n, a_type, b_type),
        accumulate=accumulate,
    )  # fmt: skip
    outcome = rig.run(issue, images(a, b, K128, K128), tmem)
    assert outcome.rules == []
    expect(outcome, d_cells(128, n), 0, scatter(av, along) @ bv.T + (d if accumulate else 0))


def product(rng, kind, a_type, b_type, d_type, n):
    """The words of D = A B^T of 128 rows, and the exact product."""
    (a, av), (b, bv) = random_operand(rng, a_type, 128), wide(rng, b_type, n)
    codes, along = random_pattern(rng, kind, 128)
    tmem, words = np.zeros((128, 512), np.uint32), metadata_words(kind, codes)
    tmem[:, METADATA : METADATA + words.shape[1]] = words
    issue = sparse_text(
        f".sp.cta_group::1.kind::{kind}", *descriptors(K128, K128), instruction(kind, 128, n, a_type, b_type, d_type)
    )
    return rig.run(issue, images(a, b, K128, K128), tmem).tmem[:, :n], scatter(av, along) @ bv.T


def test_kind_i8():
    words, exact = product(np.random.default_rng(21), "i8", "s8", "u8", "s32", 64)
    assert (words.view(np.int32) == exact).all()


def test_an_f16_accumulator_rounds_once():
    words, exact = product(np.random.default_rng(22), "f16", "f16", "f16", "f16", 32)
    assert (words.astype(np.uint16).view(np.float16) == exact.astype(np.float16)).mean() > 0.99


SCALED = [
    ("mxf8f6f4", ".block_scale", 1, "e4m3", "e2m3", 1, 3, 1),
    ("mxf4", ".block_scale.block32", 2, "fp4", "fp4", 1, 2, 0),
    ("mxf4nvf4", ".block_scale.block16", 4, "fp4", "fp4", 0, 0, 0),
]


@pytest.mark.parametrize(("kind", "size", "s", "a_type", "b_type", "e8m0", "id_a", "id_b"), SCALED)
def test_block_scaled_kinds(kind, size, s, a_type, b_type, e8m0, id_a, id_b):
    """As many scales as a dense instruction has, each for twice as much of K."""
    rng = np.random.default_rng(23)
    n, pattern = 72, "mxf4" if kind == "mxf4nvf4" else kind
    (a, av), (b, bv) = random_operand(rng, a_type, 128), wide(rng, b_type, n)
    codes, along = random_pattern(rng, pattern, 128)
    low, high = (120, 134) if e8m0 else (0, 0x7F)
    sa, sb = rng.integers(low, high, (128, s)), rng.integers(low, high, (n, s))
    decode = (lambda x: 2.0 ** (x - 127)) if e8m0 else (lambda x: small_float(x, "e4m3"))
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, METADATA : METADATA + 2] = metadata_words(pattern, codes)
    tmem[:, 300:304], tmem[:, 400:403] = scale_columns(sa, id_a), scale_columns(sb, id_b)
    issue = registers(("%r11", 300), ("%r12", 400)) + sparse_text(
        f".sp.cta_group::1.kind::{kind}{size}", *descriptors(K128, K128),
        instruction(kind, 128, n, a_type, b_type, e8m0=e8m0, id_a=id_a, id_b=id_b), tail="[%r11], [%r12], %p3",
    )  # fmt: skip
    outcome = rig.run(issue, images(a, b, K128, K128), tmem)
    assert outcome.rules == []
    block = bv.shape[1] // s
    want = (scatter(av, along) * decode(sa).repeat(block, 1)) @ (bv * decode(sb).repeat(block, 1)).T
    expect(outcome, d_cells(128, n), 0, want)


@pytest.mark.parametrize(
    ("m", "n", "ws", "pair"),
    [(32, 128, True, False), (64, 64, True, False), (128, 64, True, False), (256, 96, False, True)],
)
@pytest.mark.parametrize(("kind", "name"), [("f16", "bf16"), ("f8f6f4", "e4m3")])
def test_shapes_with_a_in_tensor_memory(m, n, ws, pair, kind, name):
    """Every lane of the data path has its own A and its own metadata."""
    rng = np.random.default_rng(24)
    cells, ctas = d_cells(m, n, ws=ws, pair=pair), 2 if pair else 1
    a, av = random_operand(rng, name, ctas * 128)
    codes, along = random_pattern(rng, kind, ctas * 128)
    b, bv = wide(rng, name, n)
    dense = scatter(av, along).reshape(ctas, 128, -1)
    tmem = np.zeros((ctas, 128, 512), np.uint32)
    tmem[:, :, 300:308] = a.view(np.uint32).reshape(ctas, 128, 8)
    for c in range(ctas):
        words = metadata_words(kind, codes[128 * c :][:128])
        tmem[c, :, METADATA : METADATA + words.shape[1]] = words
    issue = sparse_text(
        f"{'.ws' if ws else ''}.sp.cta_group::{ctas}.kind::{kind}", 300, K128.descriptor(rig.BASE + B_AT),
        instruction(kind, m, n, name, name), a_tmem=True,
    )  # fmt: skip
    shared = [images(a[:0], part, K128, K128) for part in (np.split(b, 2) if pair else [b])]
    outcome = rig.run(issue, shared, tmem, pair=pair)
    assert set(outcome.rules) <= ({"mbarrier-race"} if pair else set())
    expect(outcome, cells, 0, np.einsum("mnk,nk->mn", dense[cells[..., 0], cells[..., 1]], bv))


def test_a_selector_chooses_the_column_and_zeros_are_not_multiplied():
    rng = np.random.default_rng(25)
    (a, av), (b, bv) = random_operand(rng, "f16", 128), wide(rng, "f16", 32)
    tmem = np.zeros((128, 512), np.uint32)
    first = np.full((128, 8), 0b0100)  # elements 0 and 1 of each four
    second, along = random_pattern(rng, "f16", 128)
    tmem[:, METADATA : METADATA + 1], tmem[:, METADATA + 1 : METADATA + 2] = (
        metadata_words("f16", first),
        metadata_words("f16", second),
    )
    want = scatter(av, along) @ bv.T
    idesc = instruction("f16", 128, 32, "f16", "f16")
    issue = sparse_text(".sp.cta_group::1.kind::f16", *descriptors(K128, K128), idesc | 1)
    expect(rig.run(issue, images(a, b, K128, K128), tmem), d_cells(128, 32), 0, want)
    b.view(np.uint16)[:, 2::4] = 0x7C00  # infinities that `first` never chooses
    issue = sparse_text(".sp.cta_group::1.kind::f16", *descriptors(K128, K128), idesc)
    got = rig.run(issue, images(a, b, K128, K128), tmem).tmem[:, :32].view(np.float32)
    assert np.isfinite(got).all()


@pytest.mark.parametrize("schedule", ["realistic", "early", "late"])
def test_between_dense_mmas_of_the_same_accumulator(schedule):
    rng = np.random.default_rng(27)
    (a, av), (b, bv) = random_operand(rng, "f16", 128), wide(rng, "f16", 48)
    codes, along = random_pattern(rng, "f16", 128)
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, :48], tmem[:, METADATA : METADATA + 1] = f32_words(start_d(rng, 128, 48)), metadata_words("f16", codes)
    at, idesc = descriptors(K128, K128), instruction("f16", 128, 48, "f16", "f16")
    first, dense = (mma_text(".cta_group::1.kind::f16", 0, *at, idesc, accumulate=x) for x in (False, True))
    sparse = sparse_text(".sp.cta_group::1.kind::f16", *at, idesc, accumulate=True)
    outcome = rig.run("\n".join([first, dense, sparse, dense]), images(a, b, K128, K128), tmem, schedule=schedule)
    assert outcome.rules == []
    expect(outcome, d_cells(128, 48), 0, 3 * av @ bv[:, :16].T + scatter(av, along) @ bv.T)


def test_metadata_that_the_mma_before_it_wrote():
    """Whose sums are three bf16 numbers, which make up the bits of one f32."""
    rng = np.random.default_rng(28)
    (a, av), (b, bv) = random_operand(rng, "f16", 128), wide(rng, "f16", 32)
    codes = np.full((128, 8), 0b0100)  # elements 0 and 1 of each four
    value = metadata_words("f16", codes)[0].view(np.float32)
    parts = np.zeros((8, 16), np.uint16)
    for k in range(3):
        parts[:, k] = value.view(np.uint32) >> 16
        value = value - (parts[0, k : k + 1].astype(np.uint32) << 16).view(np.float32)
    assert value == 0
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, METADATA : METADATA + 8] = 0xEEEEEEEE  # elements 2 and 3
    tmem[:, 400:408] = 0x3F803F80  # ones
    second = B_AT + 32768
    dense = mma_text(
        ".cta_group::1.kind::f16", METADATA, 400, K128.descriptor(rig.BASE + second),
        instruction("f16", 128, 8, "bf16", "bf16"), a_tmem=True, accumulate=False,
    )  # fmt: skip
    sparse = sparse_text(F16, *descriptors(K128, K128), instruction("f16", 128, 32, "f16", "f16"))
    shared = images(a, b, K128, K128)[:second] + K128.place(parts.view(np.uint8), SIZE - second)
    outcome = rig.run(f"{dense}\n{sparse}", shared, tmem)
    along = np.arange(0, 32, 4).repeat(2) + np.tile([0, 1], 8)
    expect(outcome, d_cells(128, 32), 0, scatter(av, np.tile(along, (128, 1))) @ bv.T)


LAYOUTS = [
    ("f16", "bf16", replace(k_major(0), stride=512)),
    ("f16", "bf16", k_major(64)),
    ("f8f6f4", "e4m3", k_major(128, 64)),
    ("f16", "bf16", mn_major(16, 2, 128)),
    ("f16", "bf16", mn_major(128, 2, 128)),
    ("f8f6f4", "e4m3", mn_major(64, 1, 128)),
    ("tf32", "tf32", mn_major(1, 4, 128)),
]


@pytest.mark.parametrize(("kind", "name", "layout"), LAYOUTS, ids=lambda x: getattr(x, "span", x))
def test_layouts_of_a_b_with_64_bytes_a_row(kind, name, layout):
    if layout.mn_major:  # the next atom of MN, or without a swizzle of the next 8 k, lies behind 64 bytes of K
        depth = 64 // layout.element
        layout = replace(layout, stride=128 * depth // 8) if layout.code == 0 else layout
        layout = layout if layout.code == 0 else replace(layout, leading=layout.span * depth)
    rng = np.random.default_rng(26)
    (a, av), (b, bv) = random_operand(rng, name, 128), wide(rng, name, 64)
    codes, along = random_pattern(rng, kind, 128)
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, METADATA : METADATA + GROUPS[kind][1]] = metadata_words(kind, codes)
    idesc = instruction(kind, 128, 64, name, name, b_mn=int(layout.mn_major))
    issue = sparse_text(f".sp.cta_group::1.kind::{kind}", *descriptors(K128, layout), idesc)
    outcome = rig.run(issue, images(a, b, K128, layout), tmem)
    assert outcome.rules == []
    expect(outcome, d_cells(128, 64), 0, scatter(av, along) @ bv.T)


F16 = ".sp.cta_group::1.kind::f16"
F8 = ".sp.cta_group::1.kind::f8f6f4"
REFUSED = [
    (F16, instruction("f16", 128, 64, "f16", "f16"), {}, {"xor": SPARSE}, "sparsity bit is not set"),
    (F16, instruction("f16", 128, 64, "f16", "f16") | 2, {}, {}, "sparsity selector 2"),
    (F8, instruction("f8f6f4", 128, 64, "e4m3", "e4m3") | 1, {}, {}, "sparsity selector 1"),
    (F16, instruction("f16", 64, 64, "f16", "f16"), {}, {}, "M = 64"),
    (".ws" + F16, instruction("f16", 128, 256, "f16", "f16"), {}, {}, "N = 256"),
    (F16, instruction("f16", 128, 64, "f16", "f16"), {"at": METADATA + 1}, {}, "even column"),
    (F16, instruction("f16", 128, 64, "f16", "f16"), {"at": METADATA | 1 << 16}, {}, "lane 1"),
]


@pytest.mark.parametrize(("mods", "idesc", "options", "change", "message"), REFUSED)
def test_refusals(mods, idesc, options, change, message):
    text = sparse_text(mods, *descriptors(K128, K128), idesc, **options)
    text = text.replace(str(idesc | SPARSE), str((idesc | SPARSE) ^ change.get("xor", 0)))
    assert message in rig.run(text, bytes(131072)).report.findings[-1].message


def test_a_32_byte_swizzle_has_no_room_for_b():
    layout = k_major(32)
    text = sparse_text(F16, *descriptors(K128, layout), instruction("f16", 128, 64, "f16", "f16"))
    assert "32-byte swizzle" in rig.run(text, bytes(131072)).report.findings[-1].message
