"""mma.sync of blocks with scales (sm_120a): dense and sparse, against float64 products.

Scales and metadata are laid out by CuTe's layouts SFALayout, SFBLayout and ELayout (mma_traits_sm120.hpp and
mma_traits_sm120_sparse.hpp of CUTLASS), elements by the ISA's tables.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha import emulator
from tests.emulator import matrix_fragments as fr
from tests.emulator import matrix_rig as rig

RNG = np.random.default_rng(120)
PAIRS = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])


@dataclass(frozen=True)
class Form:
    kind: str
    k: int
    count: int  # scales a row
    a: str = "e2m1"
    b: str = "e2m1"
    scales: str = "ue8m0"
    sparse: bool = False
    size: str = ""  # as it is written; empty for the default

    @property
    def packed(self) -> bool:
        return self.kind != "mxf8f6f4"

    @property
    def mnemonic(self) -> str:
        variant = ".sp::ordered_metadata" if self.sparse else ""
        size = self.size or f".scale_vec::{self.count}X"
        return (
            f"mma{variant}.sync.aligned.m16n8k{self.k}.row.col.kind::{self.kind}.block_scale{size.replace('-', '')}"
            f".f32.{self.a}.{self.b}.f32.{self.scales}"
        )


def _layout(index: int, shape: list[int], stride: list[int]) -> int:
    """What a CuTe layout makes of a coordinate, the first mode running fastest."""
    total = 0
    for extent, step in zip(shape, stride, strict=True):
        total += index % extent * step
        index //= extent
    return total


def _scales_of_a(words: NDArray[Any], k: int, count: int, byte: int, thread: int) -> NDArray[np.int64]:
    """Raw scales [row, k]."""
    found = np.zeros((16, k), np.int64)
    for lane in range(32):
        if lane // 2 % 2 == thread:
            for v in range(k):
                at = _layout(lane, [2, 2, 8], [8, 0, 1]) + 16 * v
                found[at % 16, at // 16] = words[lane] >> 8 * (byte + v // (k // count)) & 0xFF
    return found


def _scales_of_b(words: NDArray[Any], k: int, count: int, byte: int, thread: int) -> NDArray[np.int64]:
    found = np.zeros((k, 8), np.int64)
    for lane in range(32):
        if lane % 4 == thread:
            for v in range(k):
                at = _layout(lane, [4, 8], [0, 1]) + 8 * v
                found[at // 8, at % 8] = words[lane] >> 8 * (byte + v // (k // count)) & 0xFF
    return found


def _scale(raw: NDArray[np.int64], name: str) -> NDArray[np.float64]:
    if name == "ue8m0":
        return np.where(raw == 0xFF, np.nan, 2.0 ** (raw - 127))
    return fr.minifloat(raw & 0x7F, 4, 3, "nan")


def _elements(shape: tuple[int, int], ty: str, packed: bool) -> tuple[NDArray[Any], NDArray[np.float64]]:
    exponent, mantissa, special = fr.FORMATS[ty]
    bits = 1 + exponent + mantissa
    raw = RNG.integers(0, 1 << bits, shape)
    value = fr.minifloat(raw, exponent, mantissa, special)
    raw = np.where(np.isfinite(value), raw, 0)
    padding = 0 if packed or bits == 8 else RNG.integers(0, 256, shape) & (0xC3 if bits == 4 else 0xC0)
    return raw << (2 if ty == "e2m1" and not packed else 0) | padding, fr.minifloat(raw, exponent, mantissa, special)


def _metadata(codes: NDArray[np.int64], k: int) -> NDArray[np.uint32]:
    """CuTe's ELayout, ((2, 2, 8), K / 2) : ((8, 16 K / 2, 1), 16), of which a chunk has four bits."""
    words = np.zeros(32, np.uint64)
    chunks = codes.shape[1] // 2
    for lane in range(32):
        for chunk in range(chunks):
            at = _layout(lane, [2, 2, 8], [8, 8 * k, 1]) + 16 * (chunk * (k // 2 // chunks))
            words[lane] |= np.uint64(int(codes[at % 16, at // 16 // (k // 2 // chunks)]) << 4 * chunk)
    return words.astype(np.uint32)


def _sparse(form: Form, stored: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
    """A as a dense matrix, and its metadata."""
    chunk = 8 if form.packed else 4
    pairs = PAIRS[RNG.integers(0, 6, (16, form.k // chunk))]
    inside = pairs if chunk == 4 else (2 * pairs[..., None] + np.arange(2)).reshape(16, -1, 4)
    at = (chunk * np.arange(form.k // chunk)[:, None] + inside).reshape(16, -1)
    dense = np.zeros((16, form.k))
    np.put_along_axis(dense, at, stored, axis=1)
    return dense, _metadata(pairs[..., 0] | pairs[..., 1] << 2, form.k)


def _fragments(form: Form, raw_a: NDArray[Any], raw_b: NDArray[Any], c: NDArray[Any]) -> list[NDArray[np.uint32]]:
    bits, kind = (4, "b4") if form.packed else (8, "b8")
    stored = raw_a.shape[1]
    na, nb = stored // 2, form.k // 4
    a = np.array([[raw_a[fr.a_position(f"m16n8k{stored}", kind, x, i)] for i in range(na)] for x in range(32)])
    half = nb // 2 if form.sparse else nb  # B of a K beyond the dense shapes goes on as it begins

    def of_b(lane: int, i: int) -> Any:
        row, column = fr.b_position(kind, lane, i % half)
        return raw_b[row + i // half * (form.k // 2), column]

    b = np.array([[of_b(lane, i) for i in range(nb)] for lane in range(32)])
    cd = np.array([[c[fr.c_position(16, x, i)] for i in range(4)] for x in range(32)], np.float32)
    return [fr.pack(a, bits), fr.pack(b, bits), cd.view(np.uint32)]


def _launch(form: Form, words: NDArray[np.uint32], counts: list[int], selectors: tuple[str, str]) -> rig.Result:
    names = [f"%r{i}" for i in range(words.shape[1])]
    vectors = []
    for count in counts:
        vectors.append("{" + ", ".join(names[:count]) + "}")
        names = names[count:]
    a, b, c, sa, sb, *metadata = vectors
    sparse = f" {metadata[0]}, 0x0," if metadata else ""
    width = words.shape[1]
    body = f"mad.wide.u32 %rd0, %lane0, {4 * width}, %p_in; mad.wide.u32 %rd1, %lane0, 16, %p_d;\n"
    body += "\n".join(f"ld.global.b32 %r{i}, [%rd0+{4 * i}];" for i in range(width))
    body += f"""
    {form.mnemonic} {{%f0, %f1, %f2, %f3}}, {a}, {b}, {c},{sparse} {sa}, {{{selectors[0]}}}, {sb}, {{{selectors[1]}}};
    st.global.v4.f32 [%rd1], {{%f0, %f1, %f2, %f3}};"""
    registers = ".reg .b32 %r<64>; .reg .f32 %f<8>; .reg .b64 %rd<4>; .reg .b16 %h<8>; .reg .pred %p<4>;"
    return rig.run(body, {"in": words, "d": np.zeros(128, np.float32)}, registers=registers, target="sm_120a")


def _check(form: Form, byte_a: int = 0, thread_a: int = 0, byte_b: int = 0, thread_b: int = 0) -> NDArray[np.float32]:
    raw_a, value_a = _elements((16, form.k // (2 if form.sparse else 1)), form.a, form.packed)
    raw_b, value_b = _elements((form.k, 8), form.b, form.packed)
    c = RNG.standard_normal((16, 8)).astype(np.float32)
    low, high = (118, 136) if form.scales == "ue8m0" else (0, 256)
    scale_words = RNG.integers(low, high, (2, 32, 4)).astype(np.uint8)
    scale_words[(scale_words & 0x7F) == 0x7F] = 0x38  # of ue4m3 a NaN
    scale_words = scale_words.view(np.uint32)[..., 0]
    parts = [*_fragments(form, raw_a, raw_b, c), *(x[:, None] for x in scale_words)]
    if form.sparse:
        value_a, metadata = _sparse(form, value_a)
        parts.append(metadata[:, None])
    selectors = (f"{byte_a}, {thread_a}", f"{byte_b}, {thread_b}")
    out = _launch(form, np.hstack(parts), [x.shape[1] for x in parts], selectors)
    assert out.rules == []
    flat, got = out.array("d", np.float32).reshape(32, 4), np.zeros((16, 8), np.float32)
    for lane, i in itertools.product(range(32), range(4)):
        got[fr.c_position(16, lane, i)] = flat[lane, i]
    a = value_a * _scale(_scales_of_a(scale_words[0], form.k, form.count, byte_a, thread_a), form.scales)
    b = value_b * _scale(_scales_of_b(scale_words[1], form.k, form.count, byte_b, thread_b), form.scales)
    exact, bound = a @ b + c, np.abs(a) @ np.abs(b) + np.abs(c)
    assert np.all(np.abs(got - exact) <= 2.0**-24 * np.abs(exact) + 2.0**-40 * bound)
    return got


EIGHT = [("e4m3", "e5m2"), ("e2m1", "e3m2"), ("e2m3", "e2m1"), ("e5m2", "e4m3"), ("e3m2", "e2m3"), ("e4m3", "e4m3")]
FORMS = [
    *(Form("mxf8f6f4", 32, 1, a, b) for a, b in EIGHT),
    Form("mxf8f6f4", 32, 1, "e5m2", "e2m1", size="-"),
    Form("mxf4", 64, 2),
    Form("mxf4", 64, 2, size="-"),
    Form("mxf4nvf4", 64, 2),
    Form("mxf4nvf4", 64, 4),
    Form("mxf4nvf4", 64, 4, scales="ue4m3"),
    *(Form("mxf8f6f4", 64, 1, a, b, sparse=True) for a, b in EIGHT[:3]),
    Form("mxf4", 128, 2, sparse=True),
    Form("mxf4nvf4", 128, 2, sparse=True),
    Form("mxf4nvf4", 128, 4, scales="ue4m3", sparse=True),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.mnemonic.removeprefix("mma"))
def test_products(form: Form) -> None:
    _check(form)


@pytest.mark.parametrize("form", [FORMS[0], FORMS[7], FORMS[12]], ids=["1X", "2X", "4X"])
def test_selectors(form: Form) -> None:
    """Every byte and every thread that may hold scales, for A and for B."""
    for byte in range(0, 4, form.count):
        for thread_a, thread_b in ((0, 3), (1, 2), (0, 1), (1, 0)):
            _check(form, byte, thread_a, 4 - form.count - byte, thread_b)


def test_a_scale_that_is_no_number() -> None:
    form = Form("mxf8f6f4", 32, 1, "e4m3", "e4m3")
    parts = [np.full((32, 4), 0x38383838), np.full((32, 2), 0x38383838), np.zeros((32, 4), np.int64)]
    scales = np.full((32, 2), 127)
    scales[4 * 3 + 1, 0] = 0xFF  # of row 11
    words = np.hstack([*parts, scales]).astype(np.uint32)
    flat = _launch(form, words, [4, 2, 4, 1, 1], ("0, 0", "0, 0")).array("d", np.uint32).reshape(32, 4)
    for lane, i in itertools.product(range(32), range(4)):
        row = fr.c_position(16, lane, i)[0]
        assert flat[lane, i] == (0x7FFFFFFF if row == 11 else np.float32(32).view(np.uint32))


@pytest.mark.parametrize("selectors", [("4, 0", "0, 0"), ("0, 2", "0, 0"), ("0, 0", "0, 4"), ("%h0, 0", "0, 0")])
def test_selectors_that_are_none(selectors: tuple[str, str]) -> None:
    form = Form("mxf8f6f4", 32, 1, "e4m3", "e4m3")
    body = (
        f"cvt.u16.u32 %h0, %lane0; {form.mnemonic} {{%f0, %f1, %f2, %f3}}, {{%lane0, %lane0, %lane0, %lane0}},"
        f"{{%lane0, %lane0}}, {{0f00000000, 0f00000000, 0f00000000, 0f00000000}}, {{%lane0}}, {{{selectors[0]}}},"
        f"{{%lane0}}, {{{selectors[1]}}};"
    )
    out = rig.run(body, {"x": 4}, registers=".reg .f32 %f<4>; .reg .b16 %h<2>;", target="sm_120a")
    assert out.rules == ["scale-selector"]


@pytest.mark.parametrize(
    ("mnemonic", "message"),
    [
        (Form("mxf4nvf4", 64, 4, size="-").mnemonic, "needs its .scale_vec"),
        (Form("mxf4nvf4", 64, 2, scales="ue4m3").mnemonic, "do not go with this kind"),
        (Form("mxf4", 64, 4).mnemonic, "do not go with this kind"),
        (Form("mxf4", 32, 2).mnemonic, "no such shape"),
        (Form("mxf8f6f4", 64, 1).mnemonic, "no such shape"),
        (Form("mxf4", 64, 2, "e4m3").mnemonic, "one of .e2m1 is missing"),
    ],
)
def test_what_is_refused(mnemonic: str, message: str) -> None:
    r = "{%lane0, %lane0, %lane0, %lane0}"
    f = "{%f0, %f1, %f2, %f3}"
    text = f"{mnemonic} {f}, {r}, {{%lane0, %lane0}}, {f}, %lane0, {{0, 0}}, %lane0, {{0, 0}};"
    with pytest.raises(emulator.PtxError, match=message):
        rig.run(text, {"x": 4}, registers=".reg .f32 %f<4>;", target="sm_120a")
