"""mma.sync: each shape and type against float64 products of matrices laid out by the ISA's tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha import emulator
from tests.emulator import matrix_fragments as fr
from tests.emulator import matrix_rig as rig
from tests.probes.sums import truncated_sum

RNG = np.random.default_rng(7)


def _program(mnemonic: str, counts: tuple[int, int, int, int], wide: bool) -> str:
    """Loads a lane's registers of A, B and C, multiplies, stores D."""
    size, ty = (8, "b64") if wide else (4, "b32")
    register = "f64" if wide else "b32"
    names = {}
    lines = [f".reg .{register} %d<8>; .reg .{register} %a<8>; .reg .{register} %b<8>; .reg .{register} %c<8>;"]
    for name, count in zip("abc", counts[1:], strict=True):
        lines.append(f"mad.wide.u32 %rd0, %lane0, {size * count}, %p_{name};")
        for k in range(count):
            lines.append(f"ld.global.{ty} %{name}{k}, [%rd0+{size * k}];")
        names[name] = "{" + ", ".join(f"%{name}{k}" for k in range(count)) + "}"
    d = "{" + ", ".join(f"%d{k}" for k in range(counts[0])) + "}"
    lines.append(f"{mnemonic} {d}, {names['a']}, {names['b']}, {names['c']};")
    lines.append(f"mad.wide.u32 %rd0, %lane0, {size * counts[0]}, %p_d;")
    lines += [f"st.global.{ty} [%rd0+{size * k}], %d{k};" for k in range(counts[0])]
    return "\n".join(lines)


def _multiply(
    mnemonic: str, shape: str, kind: str, raw_a: NDArray[Any], raw_b: NDArray[Any], raw_c: NDArray[Any], target: str
) -> NDArray[Any]:
    """Runs one mma on raw element matrices; the raw D as a matrix. C's dtype is that of the accumulator."""
    rows, k = raw_a.shape
    bits = {"f16": 16, "tf32": 32, "f64": 64, "b8": 8, "b4": 4, "b1": 1}[kind]
    na, nb, nc = rows * k // 32, k * 8 // 32, rows * 8 // 32
    a = np.array([[raw_a[fr.a_position(shape, kind, lane, i)] for i in range(na)] for lane in range(32)])
    b = np.array([[raw_b[fr.b_position(kind, lane, i)] for i in range(nb)] for lane in range(32)])
    c = np.array([[raw_c[fr.c_position(rows, lane, i)] for i in range(nc)] for lane in range(32)], raw_c.dtype)
    if kind != "f64":
        a, b = fr.pack(a, bits), fr.pack(b, bits)
    size = 8 if kind == "f64" else 4
    counts = (c.nbytes // 32 // size, a.shape[1], b.shape[1], c.nbytes // 32 // size)
    out = rig.run(_program(mnemonic, counts, kind == "f64"), {"a": a, "b": b, "c": c, "d": c.nbytes}, target=target)
    assert out.rules == []
    flat = out.array("d", raw_c.dtype).reshape(32, nc)
    d = np.zeros((rows, 8), raw_c.dtype)
    for lane in range(32):
        for i in range(nc):
            d[fr.c_position(rows, lane, i)] = flat[lane, i]
    return d


def _dims(shape: str) -> tuple[int, int]:
    m, k = shape[1:].split("n8k")
    return int(m), int(k)


FLOAT_CASES = [
    *((s, "f16", t, c) for s in ("m16n8k8", "m16n8k16") for t, c in (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"))),
    *((s, "tf32", "tf32", "f32") for s in ("m16n8k4", "m16n8k8")),
    *((s, "b8", t, c) for s in ("m16n8k16", "m16n8k32") for t in ("e4m3", "e5m2") for c in ("f32", "f16")),
]


def _elements(values: NDArray[np.float64], ty: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Raw elements nearest to small multiples of 1/8, and their exact values."""
    if ty == "f16":
        return values.astype(np.float16).view(np.uint16), values.astype(np.float16).astype(np.float64)
    if ty == "bf16":
        raw = fr.to_bf16(values)
        return raw, fr.from_bf16(raw).astype(np.float64)
    if ty == "tf32":
        bits = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
        noise = RNG.integers(0, 0x2000, values.shape, dtype=np.uint32)  # bits that must not be read
        return bits | noise, bits.view(np.float32).astype(np.float64)
    exponent, mantissa, special = fr.FORMATS[ty]
    raw = RNG.integers(0, 2 ** (1 + exponent + mantissa), values.shape)
    decoded = fr.minifloat(raw, exponent, mantissa, special)
    raw = np.where(np.isfinite(decoded) & (np.abs(decoded) <= 8), raw, 0)
    return raw << (2 if ty == "e2m1" else 0), fr.minifloat(raw, exponent, mantissa, special)


@pytest.mark.parametrize(("shape", "kind", "ty", "acc"), FLOAT_CASES)
@pytest.mark.parametrize("integral", [True, False])
def test_float(shape: str, kind: str, ty: str, acc: str, integral: bool) -> None:
    m, k = _dims(shape)
    draw = (lambda s: RNG.integers(-4, 5, s).astype(np.float64)) if integral else RNG.standard_normal
    raw_a, a = _elements(draw((m, k)), ty)
    raw_b, b = _elements(draw((k, 8)), ty)
    dtype = np.float16 if acc == "f16" else np.float32
    c = draw((m, 8)).astype(dtype)
    d = _multiply(f"mma.sync.aligned.{shape}.row.col.{acc}.{ty}.{ty}.{acc}", shape, kind, raw_a, raw_b, c, "sm_100a")
    exact = a @ b + c.astype(np.float64)
    if integral and ty in ("f16", "bf16", "tf32"):
        np.testing.assert_array_equal(d.astype(np.float64), exact)
    else:
        bound = np.abs(a) @ np.abs(b) + np.abs(c.astype(np.float64))
        # 8-bit operands are two instructions and an addition, each rounded to f16.
        largest, roundings = (bound, 3) if kind == "b8" else (np.abs(exact), 1)
        step = roundings * (2.0**-11 * largest + 2.0**-25) if acc == "f16" else 0.0
        assert np.all(np.abs(d.astype(np.float64) - exact) <= bound * (k + 1) * 2.0**-24 + step)


@pytest.mark.parametrize(
    "types", [("e4m3", "e2m1"), ("e2m1", "e3m2"), ("e2m3", "e5m2"), ("e2m1", "e2m1"), ("e3m2", "e4m3")]
)
def test_f8f6f4(types: tuple[str, str]) -> None:
    ta, tb = types
    raw_a, a = _elements(np.zeros((16, 32)), ta)
    raw_b, b = _elements(np.zeros((32, 8)), tb)
    c = RNG.integers(-8, 9, (16, 8)).astype(np.float32)
    name = f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.{ta}.{tb}.f32"
    d = _multiply(name, "m16n8k32", "b8", raw_a, raw_b, c, "sm_120a")
    np.testing.assert_allclose(d, a @ b + c, rtol=0, atol=1e-4)


@pytest.mark.parametrize("ty", ["bf16", "f16"])
def test_f32_sum_is_aligned_and_truncated(ty: str) -> None:
    """All products and C at once, 25 bits below the largest (tests/probes/sums.py, fitted to an H200)."""
    raw_a, _ = _elements(RNG.standard_normal((16, 16)) * 2.0 ** RNG.integers(-4, 5, (16, 16)), ty)
    raw_b, _ = _elements(RNG.standard_normal((16, 8)), ty)
    c = RNG.standard_normal((16, 8)).astype(np.float32)
    d = _multiply(f"mma.sync.aligned.m16n8k16.row.col.f32.{ty}.{ty}.f32", "m16n8k16", "f16", raw_a, raw_b, c, "sm_100a")
    expected = truncated_sum(raw_a, raw_b.T, c.view(np.uint32), ty, fraction=25, group=16)
    np.testing.assert_array_equal(d.view(np.uint32), expected)
    rounded = truncated_sum(raw_a, raw_b.T, c.view(np.uint32), ty, fraction=24, group=16)
    assert np.any(d.view(np.uint32) != rounded)  # one bit less would be seen


def test_products_of_eight_bits_are_added_to_c_by_a_rounding() -> None:
    """They are two sums without C, which is added last: three quarters of its last place are rounded up, where one
    sum of all would cut them off."""
    a, b = np.zeros((16, 32), np.uint8), np.zeros((32, 8), np.uint8)
    a[:, :3], b[:3] = 1, 1  # three products of 2^-18
    c = np.full((16, 8), 128, np.float32)
    d = _multiply("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "m16n8k32", "b8", a, b, c, "sm_100a")
    np.testing.assert_array_equal(d, np.float32(128 + 2.0**-16))


def test_what_lies_below_a_sum_of_f16_decides_a_tie() -> None:
    """4 + 2^-9 lies between two numbers of f16; 2^-24 more is beyond the 24 bits that a sum keeps."""
    values = np.array([1, 1, 1, 1, 2.0**-9, 2.0**-12], np.float16)
    a, b = np.zeros((16, 16), np.uint16), np.zeros((16, 8), np.uint16)
    a[:, :6] = values.view(np.uint16)
    b[:6] = np.array([1, 1, 1, 1, 1, 2.0**-12], np.float16).view(np.uint16)[:, None]
    name = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
    for terms, want in ((6, 4 + 2.0**-8), (5, 4)):
        b[terms:] = 0
        d = _multiply(name, "m16n8k16", "f16", a, b, np.zeros((16, 8), np.float16), "sm_100a")
        np.testing.assert_array_equal(d, np.float16(want))


def test_special_values() -> None:
    raw_a = np.zeros((16, 16), np.uint16)
    raw_b = np.full((16, 8), 0x3C00, np.uint16)
    raw_a[0, 3], raw_a[1, 0], raw_a[2, 5], raw_a[3, 1], raw_a[3, 2] = 0x7C00, 0x7E00, 0x0001, 0x7C00, 0xFC00
    d = _multiply(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "m16n8k16",
        "f16",
        raw_a,
        raw_b,
        np.zeros((16, 8), np.float32),
        "sm_100a",
    )
    assert np.all(np.isposinf(d[0]))
    assert np.all(np.isnan(d[1]))
    assert np.all(d[2] == 2.0**-24)
    assert np.all(np.isnan(d[3]))
    big = np.full((16, 8), 65504, np.float16)
    raw_a[:] = 0
    raw_a[:, 0] = 0x4C00  # 16: half a unit in the last place of 65504, a tie that rounds to even, infinity
    d = _multiply("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "m16n8k16", "f16", raw_a, raw_b, big, "sm_100a")
    assert np.all(np.isposinf(d))


@pytest.mark.parametrize("shape", ["m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"])
def test_f64(shape: str) -> None:
    m, k = _dims(shape)
    a, b, c = RNG.standard_normal((m, k)), RNG.standard_normal((k, 8)), RNG.standard_normal((m, 8))
    d = _multiply(f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64", shape, "f64", a, b, c, "sm_90a")
    np.testing.assert_allclose(d, a @ b + c, rtol=0, atol=1e-13)


INTEGER_CASES = [
    *((s, "b8", x, y) for s in ("m8n8k16", "m16n8k16", "m16n8k32") for x in ("s8", "u8") for y in ("s8", "u8")),
    *(
        (s, "b4", x, y)
        for s in ("m8n8k32", "m16n8k32", "m16n8k64")
        for x, y in (("s4", "s4"), ("u4", "s4"), ("u4", "u4"))
    ),
]


@pytest.mark.parametrize(("shape", "kind", "x", "y"), INTEGER_CASES)
@pytest.mark.parametrize("saturate", [False, True])
def test_integer(shape: str, kind: str, x: str, y: str, saturate: bool) -> None:
    m, k = _dims(shape)
    bits = int(kind[1])
    raw_a, raw_b = RNG.integers(0, 2**bits, (m, k)), RNG.integers(0, 2**bits, (k, 8))

    def value(raw: NDArray[Any], ty: str) -> NDArray[Any]:
        return raw - (1 << bits) * (raw >> (bits - 1)) if ty[0] == "s" else raw

    c = RNG.integers(-1000, 1000, (m, 8)).astype(np.int32)
    c[0], c[1] = 2**31 - 1, -(2**31)
    suffix = ".satfinite" if saturate else ""
    d = _multiply(f"mma.sync.aligned.{shape}.row.col{suffix}.s32.{x}.{y}.s32", shape, kind, raw_a, raw_b, c, "sm_100a")
    exact = value(raw_a, x) @ value(raw_b, y) + c.astype(np.int64)
    want = np.clip(exact, -(2**31), 2**31 - 1) if saturate else (exact + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(d, want)


@pytest.mark.parametrize("shape", ["m8n8k128", "m16n8k128", "m16n8k256"])
@pytest.mark.parametrize("operation", ["xor", "and"])
def test_bits(shape: str, operation: str) -> None:
    m, k = _dims(shape)
    a, b = RNG.integers(0, 2, (m, k)), RNG.integers(0, 2, (k, 8))
    c = RNG.integers(-1000, 1000, (m, 8)).astype(np.int32)
    d = _multiply(f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{operation}.popc", shape, "b1", a, b, c, "sm_100a")
    pairs = a[:, :, None] ^ b[None] if operation == "xor" else a[:, :, None] & b[None]
    np.testing.assert_array_equal(d, pairs.sum(axis=1) + c)


R4, F4, R2, R1 = "{%r0,%r1,%r2,%r3}", "{%f0,%f1,%f2,%f3}", "{%r0,%r1}", "{%r0}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {F4}, {R2}, {R2}, {F4}", "sm_70"),
        (f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16 {F4}, {R4}, {R2}, {R2}", "same type"),
        (f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.f16.f32 {F4}, {R4}, {R2}, {F4}", "does not exist"),
        (f"mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16 {R2}, {R4}, {R2}, {R2}", "does not exist"),
        (f"mma.sync.aligned.m16n8k4.row.col.f32.bf16.bf16.f32 {F4}, {R2}, {R1}, {F4}", "no such shape"),
        (f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {F4}, {R2}, {R2}, {F4}", "A has 4 registers, not 2"),
        (f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32 {F4}, {R4}, {R2}, {F4}", "sm_120a"),
        (f"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.f32.e4m3.e4m3.f32 {F4}, {R4}, {R2}, {F4}", "mxf8f6f4"),
        (f"mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {F4}, {R4}, {R2}, {F4}", "col"),
        (f"mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32 {F4}, {R4}, {R2}, {F4}", "satfinite"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(emulator.PtxError, match=message):
        rig.run(f"{text};", {"x": 4})


def test_needs_the_whole_warp() -> None:
    body = f"""
    setp.lt.u32 %p0, %lane0, 16;
    @%p0 ret;
    mov.b32 %r0, 0; mov.b32 %r1, 0; mov.b32 %r2, 0; mov.b32 %r3, 0;
    mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {R4}, {R4}, {R2}, {R4};
    """
    assert rig.run(body, {"x": 4}).rules == ["partial-warp"]
