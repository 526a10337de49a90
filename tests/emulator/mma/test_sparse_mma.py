"""mma.sp and wgmma.sp against float64 products; metadata laid out by CuTe's ELayout, the ISA's figures in text, and by
what an H200 reads of m16n8k32 of 8 bits (tests/probes/matrix.py)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha import emulator
from tests.emulator import matrix_fragments as fr
from tests.emulator import matrix_rig as rig
from tests.emulator import wgmma_rig as wg

RNG = np.random.default_rng(23)
CHUNK = {"f16": 4, "bf16": 4, "tf32": 2, "e4m3": 4, "e5m2": 4, "s8": 4, "u8": 4, "s4": 8, "u4": 8}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4}
FRAGMENT = {16: "f16", 32: "tf32", 8: "b8", 4: "b4"}


def _pattern(rows: int, k: int, chunk: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(four bits a chunk [rows, chunks], positions in K of the stored elements [rows, K / 2])."""
    chunks = k // chunk
    if chunk == 2:
        second = RNG.integers(0, 2, (rows, chunks))
        return np.where(second, 0b1110, 0b0100), 2 * np.arange(chunks) + second
    pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])[RNG.integers(0, 6, (rows, chunks))]
    at = pairs if chunk == 4 else (2 * pairs[..., None] + np.arange(2)).reshape(rows, chunks, 4)
    return pairs[..., 0] | pairs[..., 1] << 2, (chunk * np.arange(chunks)[:, None] + at).reshape(rows, -1)


def _values(chunks: int, k: int) -> int:
    """Places in K that a word describes."""
    return {4: 2 * k, 8: k, 16: k // 2}[chunks]


def _described(chunks: int, k: int, t: int, v: int, narrow: bool) -> tuple[int, int]:
    """(row less the number of the group, place in K) of value v of a group's thread t: CuTe's ELayout, 16 rows high.

    `narrow`: of elements of up to 8 bits eight chunks are a row's, thread by thread; CuTe has no such instruction.
    """
    match chunks:
        case 8 if narrow:
            return 8 * (t & 1), v
        case 16:  # ((2, 2, 8), K / 2) : ((8, 16 K / 2, 1), 16)
            return 8 * (t & 1), k // 2 * (t >> 1) + v
        case 8:  # ((2, 2, 8), (K / 2, 2)) : ((16 K / 2, 0, 1), (16, 8)); the selector takes one of the second mode
            return 8 * (v // (k // 2)), k // 2 * (t & 1) + v % (k // 2)
        case _:  # ((4, 8), (K, 2)) : ((0, 1), (16, 8)), in the same way
            return 8 * (v // k), v % k


def _metadata(codes: NDArray[np.int64], k: int, chunk: int, selector: int, narrow: bool) -> NDArray[np.uint32]:
    """The metadata words of 32 lanes for 16 rows. Lanes that the selector leaves out hold something else."""
    words = RNG.integers(0, 2**32, 32, dtype=np.uint64)
    chunks = k // chunk
    for group in range(8):
        for t in range(4):
            if t // (chunks // 4) != selector:
                continue
            word = 0
            for v in range(0, _values(chunks, k), chunk):
                row, at = _described(chunks, k, t, v, narrow)
                word |= int(codes[row + group, at // chunk]) << 32 * v // _values(chunks, k)
            words[4 * group + t] = word
    return words.astype(np.uint32)


def _dense(stored: NDArray[np.float64], at: NDArray[np.int64]) -> NDArray[np.float64]:
    dense = np.zeros((len(stored), 2 * stored.shape[1]))
    np.put_along_axis(dense, at, stored, axis=1)
    return dense


def _warp(ty: str, k: int, acc: str, selector: int, b_type: str = "", variant: str = "sp") -> None:
    bits, chunk, b_type = BITS[ty], CHUNK[ty], b_type or ty
    raw_a, value_a = fr.elements(RNG, (16, k // 2), ty)
    raw_b, value_b = fr.elements(RNG, (k, 8), b_type)
    codes, at = _pattern(16, k, chunk)
    dtype: Any = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[acc]
    c = RNG.integers(-8, 9, (16, 8)).astype(dtype)
    kind, na, nb = FRAGMENT[bits], k // 4, k // 4
    a = np.array([[raw_a[fr.a_position(f"m16n8k{k // 2}", kind, x, i)] for i in range(na)] for x in range(32)])

    # B of a K beyond the dense shapes goes on as it begins (9.7.14.6.2).
    def b_element(lane: int, i: int) -> Any:
        turn, within = divmod(i, nb // 2)
        row, column = fr.b_position(kind, lane, within)
        return raw_b[row + turn * (k // 2), column]

    b = np.array([[b_element(lane, i) for i in range(nb)] for lane in range(32)])
    words = np.hstack([fr.pack(a, bits), fr.pack(b, bits)])
    cd = np.array([[c[fr.c_position(16, x, i)] for i in range(4)] for x in range(32)], dtype).view(np.uint32)
    words = np.hstack([words, cd, _metadata(codes, k, chunk, selector, bits <= 8)[:, None]])
    count_a, count_b, count_d = na * bits // 32, nb * bits // 32, cd.shape[1]
    names = [f"%r{i}" for i in range(words.shape[1])]
    body = f"mad.wide.u32 %rd0, %lane0, {4 * len(names)}, %p_in; mad.wide.u32 %rd1, %lane0, {4 * count_d}, %p_d;\n"
    body += "\n".join(f"ld.global.b32 {name}, [%rd0+{4 * i}];" for i, name in enumerate(names))
    cut = np.cumsum([0, count_a, count_b, count_d])
    vectors = [f"{{{', '.join(names[i:j])}}}" for i, j in pairwise(cut)]
    operands = ", ".join([*vectors, names[-1], str(selector)])
    d = [f"%r{40 + i}" for i in range(count_d)]
    body += f"""
    mma.{variant}.sync.aligned.m16n8k{k}.row.col.{acc}.{ty}.{b_type}.{acc} {{{", ".join(d)}}}, {operands};
    """
    body += "\n".join(f"st.global.b32 [%rd1+{4 * i}], {name};" for i, name in enumerate(d))
    out = rig.run(body, {"in": words, "d": cd.nbytes})
    assert out.rules == []
    flat = out.array("d", dtype).reshape(32, 4)
    got = np.zeros((16, 8))
    for lane in range(32):
        for i in range(4):
            got[fr.c_position(16, lane, i)] = flat[lane, i]
    exact = _dense(value_a, at) @ value_b + c
    np.testing.assert_array_equal(got, exact.astype(dtype) if acc == "f16" else exact)


SHAPES = [
    *((ty, k, acc) for k in (16, 32) for ty, acc in (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"))),
    *(("tf32", k, "f32") for k in (8, 16)),
    ("e4m3", 64, "f32"),
    ("e5m2", 64, "f16"),
    *((ty, k, "s32") for k in (32, 64) for ty in ("s8", "u8")),
    *((ty, k, "s32") for k in (64, 128) for ty in ("s4", "u4")),
]


@pytest.mark.parametrize(
    ("ty", "k", "acc", "selector"), [(*s, x) for s in SHAPES for x in range(16 // (s[1] // CHUNK[s[0]]))]
)
def test_mma_sp(ty: str, k: int, acc: str, selector: int) -> None:
    _warp(ty, k, acc, selector)


def test_mma_sp_of_two_types_and_with_ordered_metadata() -> None:
    _warp("e4m3", 64, "f32", 0, "e5m2")
    _warp("s8", 64, "s32", 0, "u8", "sp::ordered_metadata")


def test_zeros_of_a_sparse_row_multiply_nothing() -> None:
    """Infinity where A stores nothing is not multiplied by zero."""
    body = """
    mov.b32 %r0, 0x3C003C00; mov.b32 %r1, 0x7C007C00; mov.b32 %r2, 0; mov.b32 %r3, 0;
    mov.b32 %r5, 0x44444444; // elements 0 and 1 of every four
    and.b32 %r6, %lane0, 1; setp.eq.u32 %p0, %r6, 1; selp.b32 %r7, %r1, %r0, %p0; // rows 2 and 3 of four are infinite
    mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        {%f0, %f1, %f2, %f3}, {%r0, %r0}, {%r7, %r7}, {%r2, %r2, %r2, %r2}, %r5, 0;
    mad.wide.u32 %rd0, %lane0, 4, %p_d;
    st.global.f32 [%rd0], %f0;
    """
    np.testing.assert_array_equal(rig.run(body, {"d": 128}).array("d", np.float32), np.full(32, 8, np.float32))


GROUPS = [("f16", 32), ("bf16", 32), ("tf32", 16), ("e4m3", 64), ("e5m2", 64), ("s8", 64), ("u8", 64)]


def _place_wide(raw: NDArray[Any]) -> wg.Placed:
    """A B with 64 bytes of K a row: two of the steps of a 128-byte swizzle, side by side."""
    half = raw.shape[1] // 2
    first, second = wg.place(raw[:, :half], 1, False, 0), wg.place(raw[:, half:], 1, False, 1)
    return wg.Placed(first.image | second.image, first.fields, first.start)


@pytest.mark.parametrize(("ty", "k", "selector"), [(*g, s) for g in GROUPS for s in range(2 if g[1] < 64 else 1)])
@pytest.mark.parametrize("registers", [False, True])
def test_wgmma_sp(ty: str, k: int, selector: int, registers: bool) -> None:
    n, chunk = 24 if ty not in ("s8", "u8") else 32, CHUNK[ty]
    acc = "s32" if ty in ("s8", "u8") else "f32"
    raw_a, value_a = fr.elements(RNG, (64, k // 2), ty)
    raw_b, value_b = fr.elements(RNG, (n, k), ty)
    codes, at = _pattern(64, k, chunk)
    metadata = np.hstack([_metadata(codes[16 * w : 16 * w + 16], k, chunk, selector, BITS[ty] <= 8) for w in range(4)])
    dtype: Any = np.int32 if acc == "s32" else np.float32
    c = RNG.integers(-8, 9, (64, n)).astype(dtype)
    spread = np.array([[c[fr.wgmma_d_position(t, i)] for i in range(n // 2)] for t in range(128)], dtype)
    constants = "" if acc == "s32" else ", 1, 1"
    if ty in ("f16", "bf16"):
        constants += ", 0" if registers else ", 0, 0"
    kind = FRAGMENT[BITS[ty]]
    a: wg.Placed | NDArray[np.uint32] = wg.place(raw_a, 1, False)
    if registers:
        places = [[fr.a_position(f"m16n8k{k // 2}", kind, t % 32, i) for i in range(k // 4)] for t in range(128)]
        a = fr.pack(np.array([[raw_a[r + t // 32 * 16, x] for r, x in p] for t, p in enumerate(places)]), BITS[ty])
    name = f"wgmma.mma_async.sp.sync.aligned.m64n{n}k{k}.{acc}.{ty}.{ty}"
    out = wg.multiply(name, constants, a, _place_wide(raw_b), spread, metadata=metadata, selector=selector)
    assert out.rules == []
    got = np.zeros((64, n))
    for t, row in enumerate(out.array("d", dtype).reshape(128, n // 2)):
        for i, value in enumerate(row):
            got[fr.wgmma_d_position(t, i)] = value
    np.testing.assert_array_equal(got, _dense(value_a, at) @ value_b.T + c)


F4, R2, R4 = "{%f0,%f1,%f2,%f3}", "{%r0,%r1}", "{%r0,%r1,%r2,%r3}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {F4}, {R2}, {R2}, {F4}, %r5, 4", "selector"),
        (f"mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {F4}, {R4}, {R4}, {F4}, %r5, 2", "selector"),
        (f"mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {F4}, {R4}, {R4}, {F4}, %r5, %r6", "selector"),
        (f"mma.sp.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {F4}, {R2}, {R2}, {F4}, %r5, 0", "no such shape"),
        (f"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {F4}, {R2}, {R2}, {F4}", "6 operands"),
        (f"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {F4}, {R4}, {R2}, {F4}, %r5, 0", "A has 2 registers"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(emulator.PtxError, match=message):
        rig.run(f"{text};", {"x": 4})
