"""wmma: load, multiply and store matrices of every type and shape, in both layouts, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha import emulator
from tests.emulator import matrix_rig as rig

RNG = np.random.default_rng(11)
SHAPES = {"m16n16k16": (16, 16, 16), "m8n32k16": (8, 32, 16), "m32n8k16": (32, 8, 16)}
SHAPES |= {"m16n16k8": (16, 16, 8), "m8n8k4": (8, 8, 4), "m8n8k32": (8, 8, 32), "m8n8k128": (8, 8, 128)}
# Registers of A and B by type and shape (PTX ISA 9.7.14.4.1).
MULTIPLICANDS = {
    ("f16", "m16n16k16"): (8, 8),
    ("f16", "m8n32k16"): (8, 8),
    ("f16", "m32n8k16"): (8, 8),
    ("bf16", "m16n16k16"): (4, 4),
    ("bf16", "m8n32k16"): (2, 8),
    ("bf16", "m32n8k16"): (8, 2),
    ("tf32", "m16n16k8"): (4, 4),
    ("f64", "m8n8k4"): (1, 1),
    ("s8", "m16n16k16"): (2, 2),
    ("u8", "m8n32k16"): (1, 4),
    ("s8", "m32n8k16"): (4, 1),
}
ACCUMULATORS = {"f16": 4, "f32": 8, "s32": 8, "f64": 2}
DTYPES = {"f16": np.float16, "tf32": np.float32, "f32": np.float32, "f64": np.float64, "s32": np.int32}
DTYPES |= {"s8": np.int8, "u8": np.uint8, "bf16": np.uint16}


def _vector(name: str, count: int) -> str:
    return "{" + ", ".join(f"%{name}{k}" for k in range(count)) + "}"


def _program(
    shape: str,
    types: tuple[str, str, str],
    layouts: tuple[str, str, str],
    strides: tuple[str, str, str],
    counts: tuple[int, int, int, int] | None = None,
    space: str = "global",
    operation: str = "",
) -> str:
    """D = A B + C for buffers a, b, c, d. `types`: of A and B, of C, of D."""
    ab, c, d = types
    na, nb, nc, nd = counts or (*MULTIPLICANDS[ab, shape], ACCUMULATORS[c], ACCUMULATORS[d])
    register = {"f64": "f64"}.get(ab, "b32")
    signature = f"{d}.{c}" if ab == "f16" else f"{d}.{ab}.{ab}.{c}"
    where = f".{space}" if space else ""
    return f"""
    .reg .{register} %a<8>; .reg .{register} %b<8>; .reg .{register} %c<8>; .reg .{register} %d<8>;
    wmma.load.a.sync.aligned.{layouts[0]}.{shape}{where}.{ab} {_vector("a", na)}, [%p_a]{strides[0]};
    wmma.load.b.sync.aligned.{layouts[1]}.{shape}{where}.{ab} {_vector("b", nb)}, [%p_b]{strides[1]};
    wmma.load.c.sync.aligned.{layouts[2]}.{shape}{where}.{c} {_vector("c", nc)}, [%p_c]{strides[2]};
    wmma.mma{operation}.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}.{signature}
        {_vector("d", nd)}, {_vector("a", na)}, {_vector("b", nb)}, {_vector("c", nc)};
    wmma.store.d.sync.aligned.{layouts[2]}.{shape}{where}.{d} [%p_d], {_vector("d", nd)}{strides[2]};
    """


def _small(type_name: str, shape: tuple[int, int]) -> NDArray[Any]:
    """Integers that every sum of products represents."""
    low = 0 if type_name == "u8" else -5
    values = RNG.integers(low, 6, shape)
    if type_name == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(DTYPES[type_name])


def _value(raw: NDArray[Any], type_name: str) -> NDArray[Any]:
    if type_name == "bf16":
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return raw.astype(np.float64)


def _as_stored(matrix: NDArray[Any], layout: str, stride: int) -> NDArray[Any]:
    """The matrix as it lies in memory: rows, or columns, `stride` elements apart."""
    lines = matrix if layout == "row" else matrix.T
    memory = np.zeros((lines.shape[0], stride), matrix.dtype)
    memory[:, : lines.shape[1]] = lines
    return memory


@pytest.mark.parametrize("layouts", [("row", "col", "row"), ("col", "row", "col"), ("row", "row", "col")])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("kind", "shape"), MULTIPLICANDS)
def test_product(kind: str, shape: str, padded: bool, layouts: tuple[str, str, str]) -> None:
    m, n, k = SHAPES[shape]
    result = {"f64": "f64", "s8": "s32", "u8": "s32"}.get(kind, "f32")
    a, b, c = _small(kind, (m, k)), _small(kind, (k, n)), _small(result, (m, n))
    sizes = [x.shape[layout == "row"] for x, layout in zip((a, b, c), layouts, strict=True)]
    strides = [size + 8 * padded for size in sizes]
    text = tuple(f", {stride}" if padded else "" for stride in strides)
    out = rig.run(
        _program(shape, (kind, result, result), layouts, text),
        {
            "a": _as_stored(a, layouts[0], strides[0]),
            "b": _as_stored(b, layouts[1], strides[1]),
            "c": _as_stored(c, layouts[2], strides[2]),
            "d": _as_stored(c * 0, layouts[2], strides[2]),
        },
    )
    assert out.rules == []
    d = out.array("d", DTYPES[result]).reshape(-1, strides[2])[:, : sizes[2]]
    d = d if layouts[2] == "row" else d.T
    np.testing.assert_array_equal(d, _value(a, kind) @ _value(b, kind) + c)


@pytest.mark.parametrize("shape", ["m16n16k16", "m8n32k16", "m32n8k16"])
@pytest.mark.parametrize(("c_type", "d_type"), [("f16", "f16"), ("f32", "f16"), ("f16", "f32")])
def test_accumulators_of_f16(shape: str, c_type: str, d_type: str) -> None:
    m, n, k = SHAPES[shape]
    a, b, c = _small("f16", (m, k)), _small("f16", (k, n)), _small(c_type, (m, n))
    program = _program(shape, ("f16", c_type, d_type), ("row", "row", "row"), ("", "", ""))
    out = rig.run(program, {"a": a, "b": b, "c": c, "d": m * n * np.dtype(DTYPES[d_type]).itemsize})
    assert out.rules == []
    d = out.array("d", DTYPES[d_type]).reshape(m, n)
    np.testing.assert_array_equal(d, a.astype(np.float64) @ b.astype(np.float64) + c)


@pytest.mark.parametrize("stride", ["", ", 32"])
def test_four_bits(stride: str) -> None:
    a, b, c = RNG.integers(-8, 8, (8, 32)), RNG.integers(-8, 8, (8, 32)), _small("s32", (8, 8))

    def packed(x: NDArray[Any]) -> NDArray[Any]:
        return ((x[:, ::2] & 15) | (x[:, 1::2] & 15) << 4).astype(np.uint8)

    program = _program("m8n8k32", ("s4", "s32", "s32"), ("row", "col", "row"), (stride, stride, ""), (1, 1, 2, 2))
    out = rig.run(program, {"a": packed(a), "b": packed(b), "c": c, "d": 256})
    assert out.rules == []
    np.testing.assert_array_equal(out.array("d", np.int32).reshape(8, 8), a @ b.T + c)


@pytest.mark.parametrize("operation", ["xor", "and"])
def test_bits(operation: str) -> None:
    a, b, c = RNG.integers(0, 2, (8, 128)), RNG.integers(0, 2, (8, 128)), _small("s32", (8, 8))
    program = _program(
        "m8n8k128",
        ("b1", "s32", "s32"),
        ("row", "col", "row"),
        ("", "", ""),
        (1, 1, 2, 2),
        operation=f".{operation}.popc",
    )
    buffers = {"a": np.packbits(a, axis=1, bitorder="little"), "b": np.packbits(b, axis=1, bitorder="little")}
    out = rig.run(program, {**buffers, "c": c, "d": 256})
    assert out.rules == []
    pairs = a[:, None] ^ b[None] if operation == "xor" else a[:, None] & b[None]
    np.testing.assert_array_equal(out.array("d", np.int32).reshape(8, 8), pairs.sum(axis=2) + c)


def test_integers_saturate() -> None:
    a, b, c = np.full((16, 16), 127, np.int8), np.full((16, 16), 127, np.int8), np.full((16, 16), 2**31 - 5, np.int32)
    program = _program("m16n16k16", ("s8", "s32", "s32"), ("row", "col", "row"), ("", "", ""))
    wraps = rig.run(program, {"a": a, "b": b, "c": c, "d": 1024}).array("d", np.int32)
    assert (wraps < 0).all()
    out = rig.run(program.replace("s8.s8.s32\n", "s8.s8.s32.satfinite\n"), {"a": a, "b": b, "c": c, "d": 1024})
    assert (out.array("d", np.int32) == 2**31 - 1).all()


def test_destinations_may_be_sources_of_other_elements() -> None:
    a, b, c = _small("bf16", (16, 16)), _small("bf16", (16, 16)), _small("f32", (16, 16))
    program = _program("m16n16k16", ("bf16", "f32", "f32"), ("row", "row", "row"), ("", "", ""))
    reversed_c = _vector("c", 8).strip("{}").split(", ")[::-1]
    swapped = program.replace(_vector("d", 8), "{" + ", ".join(reversed_c) + "}")
    buffers = {"a": a, "b": b, "c": c, "d": 1024}
    plain = rig.run(program, buffers).array("d", np.float32)
    np.testing.assert_array_equal(rig.run(swapped, buffers).array("d", np.float32), plain)


SHARED = """
    .reg .b32 %s<8>; .reg .f32 %c<8>; .reg .f32 %d<8>; .reg .b32 %x;
    mad.wide.u32 %rd0, %tid0, 8, %p_a;
    ld.global.v2.b32 {{%r0, %r1}}, [%rd0];
    shl.b32 %x, %tid0, 3;
    mov.b32 %r2, tile;
    add.u32 %x, %x, %r2;
    st.shared.v2.b32 [%x], {{%r0, %r1}};
    {barrier}
    wmma.load.a.sync.aligned.row.m16n16k16.{space}.bf16 {{%s0, %s1, %s2, %s3}}, {address};
    wmma.load.b.sync.aligned.col.m16n16k16.global.bf16 {{%s4, %s5, %s6, %s7}}, [%p_a];
    mov.b32 %c0, 0f00000000;
    wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32
        {{%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}}, {{%s0, %s1, %s2, %s3}}, {{%s4, %s5, %s6, %s7}},
        {{%c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0}};
    setp.gt.u32 %p0, %tid0, 31;
    @%p0 ret;
    wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%p_d], {{%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}};
"""
ADDRESSES = [("shared", "[tile]"), ("shared::cta", "[%r2+0]"), ("shared", "[%rd1]")]


@pytest.mark.parametrize(("space", "address"), ADDRESSES)
@pytest.mark.parametrize("barrier", ["bar.sync 0;", ""])
def test_matrix_in_shared_memory(space: str, address: str, barrier: str) -> None:
    """Each of two warps stores half of it: without a barrier, the loads are in a race."""
    a = _small("bf16", (16, 16))
    body = "mov.b64 %rd1, tile;" + SHARED.format(space=space, address=address, barrier=barrier)
    declarations = ".shared .align 32 .b8 tile[512];"
    out = rig.run(body, {"a": a, "d": 1024}, block=(64, 1, 1), declarations=declarations)
    if not barrier:
        assert "race" in out.rules
        return
    assert out.rules == []
    values = _value(a, "bf16")
    np.testing.assert_array_equal(out.array("d", np.float32).reshape(16, 16), values @ values.T)


R2, R4, F8 = "{%r0, %r1}", "{%r0, %r1, %r2, %r3}", "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {R4}, [%p_x]", "8 registers, not 4"),
        (f"wmma.load.a.sync.aligned.row.m16n16k8.global.bf16 {R4}, [%p_x]", "no matrix A of .bf16"),
        (f"wmma.load.a.sync.aligned.m16n16k8.global.tf32 {R4}, [%p_x]", "row"),
        (f"wmma.load.c.sync.aligned.row.m8n8k4.global.f32 {F8}, [%p_x]", "no matrix C of .f32"),
        ("wmma.load.b.sync.aligned.row.m8n8k32.global.s4 {%r0}, [%p_x]", "B is .col"),
        (f"wmma.load.a.sync.aligned.row.m16n16k16.local.bf16 {R4}, [%p_x]", ".local"),
        (f"wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.f16.f32 {F8}, {R4}, {R4}, {F8}", "does not exist"),
        (f"wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32.satfinite {F8}, {R4}, {R4}, {F8}", "integers"),
        (f"wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32 {F8}, {R4}, {R4}, {R4}", "8 registers, not 4"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(emulator.PtxError, match=message):
        rig.run(f"{text};", {"x": 1024})


def test_needs_the_whole_warp() -> None:
    body = f"""
    setp.lt.u32 %p0, %tid0, 16;
    @%p0 ret;
    wmma.load.a.sync.aligned.row.m16n16k8.global.tf32 {R4}, [%p_x];
    wmma.mma.sync.aligned.row.row.m16n16k8.f32.tf32.tf32.f32 {F8}, {R4}, {R4}, {F8};
    """
    assert "partial-warp" in rig.run(body, {"x": 1024}).rules
