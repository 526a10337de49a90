"""atom and red of every type, and the happens-before edges of releases and acquires (PTX ISA 8.8-8.10, 9.7.13)."""

from __future__ import annotations

import numpy as np
import pytest

from fmha import emulator

_HEAD = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .b64 in, .param .b64 cell, .param .b64 out)
{
.reg .b64 %in, %cell, %out, %at, %d<9>; .reg .b32 %i, %r<9>; .reg .b16 %h<9>; .reg .pred %p<9>; .reg .b128 %q<9>;
.shared .align 16 .b8 tile[64];
ld.param.b64 %in, [in]; ld.param.b64 %cell, [cell]; ld.param.b64 %out, [out];
mov.u32 %i, %tid.x;
"""


def _run(body: str, data: np.ndarray, cell: np.ndarray, out_bytes: int, threads: int = 64, profile: str = "strict"):
    device = emulator.Device(profile=profile)  # type: ignore[arg-type]
    buffers = [device.alloc(max(x.nbytes, 16), n) for n, x in (("in", data), ("cell", cell))]
    for buffer, x in zip(buffers, (data, cell), strict=True):
        device.write(buffer.address, x)
    out = device.alloc(out_bytes, "out")
    module = emulator.load_ptx(f"{_HEAD}{body}\nret;\n}}\n")
    report = device.launch(module, "k", (1, 1, 1), (threads, 1, 1), [*(b.address for b in buffers), out.address])
    return report, device.read(buffers[1].address, cell.nbytes), device.read(out.address, out_bytes)


_INTEGERS = [
    *((op, t) for op in ("min", "max") for t in ("u32", "s32", "u64", "s64")),
    *(("add", t) for t in ("u32", "s32", "u64")),
    *((op, t) for op in ("and", "or", "xor", "exch") for t in ("b32", "b64")),
    ("inc", "u32"),
    ("dec", "u32"),
]


def _apply(op: str, a: int, b: int) -> int:
    return {
        "min": min(a, b),
        "max": max(a, b),
        "add": a + b,
        "and": a & b,
        "or": a | b,
        "xor": a ^ b,
        "exch": b,
        "inc": 0 if a >= b else a + 1,
        "dec": b if a == 0 or a > b else a - 1,
    }[op]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("op", "type_name"), _INTEGERS)
def test_integers(op: str, type_name: str, space: str) -> None:
    width, signed = int(type_name[1:]), type_name[0] == "s"
    dtype = np.dtype(f"{'i' if signed else 'u'}{width // 8}")
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(1)
    data = rng.integers(limits.min, limits.max, 64, dtype=dtype, endpoint=True)
    if op in ("inc", "dec"):
        data = rng.integers(0, 5, 64).astype(dtype)
    start = np.array([limits.min + 7], dtype=dtype)
    where = "%cell" if space == "global" else "tile"
    register = "%d" if width == 64 else "%r"
    move = f"ld.global.b{width} {register}1, [%cell]; @%p1 st.shared.b{width} [tile], {register}1; bar.sync 0;"
    back = f"bar.sync 0; ld.shared.b{width} {register}1, [tile]; @%p1 st.global.b{width} [%cell], {register}1;"
    body = f"""
setp.eq.u32 %p1, %i, 0;
{move if space == "shared" else ""}
mad.wide.u32 %at, %i, {width // 8}, %in; ld.global.b{width} {register}2, [%at];
atom.{space}.{op}.{type_name} {register}3, [{where}], {register}2;
mad.wide.u32 %at, %i, {width // 8}, %out; st.global.b{width} [%at], {register}3;
{back if space == "shared" else ""}"""
    report, cell, out = _run(body, data, start, 64 * width // 8)
    assert not report.findings
    # Lanes in order within a warp, the warps in either order: all that this test relies on.
    outcomes = [_in_order(op, int(start[0]), data, order) for order in ((0, 1), (1, 0))]
    assert (cell.view(dtype)[0], out.view(dtype).tolist()) in outcomes


def _in_order(op: str, value: int, data: np.ndarray, order: tuple[int, int]) -> tuple[int, list[int]]:
    old = [0] * 64
    for lane in (32 * warp + n for warp in order for n in range(32)):
        old[lane] = value
        value = _apply(op, value, int(data[lane])) & (1 << 8 * data.itemsize) - 1
        value = int(np.array([value], dtype=f"u{data.itemsize}").view(data.dtype)[0])
    return value, old


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16", "f16x2", "bf16x2"])
def test_floating_point_additions(kind: str) -> None:
    values = np.arange(64) % 3 + 1.0
    width = {"f32": 32, "f64": 64, "f16": 16, "bf16": 16}.get(kind, 32)
    if kind in ("f32", "f64"):
        data, total = values.astype("f4" if kind == "f32" else "f8"), values.sum()
    else:
        half = values.astype(np.float16).view(np.uint16) if "b" not in kind else _bf16(values)
        data = half if width == 16 else half.astype(np.uint32) | half.astype(np.uint32) << 16
        total = values.sum()
    register = {16: "%h", 32: "%r", 64: "%d"}[width]
    noftz = "" if kind in ("f32", "f64") else ".noftz"
    body = f"""
mad.wide.u32 %at, %i, {width // 8}, %in; ld.global.b{width} {register}1, [%at];
red.relaxed.gpu.global.add{noftz}.{kind} [%cell], {register}1;"""
    report, cell, _ = _run(body, data, np.zeros(16, np.uint8), 16)
    assert not report.findings
    if kind in ("f32", "f64"):
        assert cell.view(data.dtype)[0] == total
        return
    want = (
        int(np.array([total], np.float16).view(np.uint16)[0]) if "b" not in kind else int(_bf16(np.array([total]))[0])
    )
    assert cell.view(np.uint16)[: width // 16].tolist() == [want] * (width // 16)


def _bf16(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)  # exact for the small integers used here


def test_an_f32_addition_flushes_denormals_in_global_memory_only() -> None:
    tiny = np.array([1], np.uint32)
    body = """setp.eq.u32 %p1, %i, 0; ld.global.b32 %r1, [%in];
@%p1 red.global.add.f32 [%cell], %r1; @%p1 st.shared.b32 [tile], %r1; @%p1 atom.shared.add.f32 %r2, [tile], %r1;
@%p1 ld.shared.b32 %r2, [tile]; @%p1 st.global.b32 [%out], %r2;"""
    report, cell, out = _run(body, tiny, np.zeros(1, np.uint32), 4)
    assert not report.findings
    assert (cell.view(np.uint32)[0], out.view(np.uint32)[0]) == (0, 2)


@pytest.mark.parametrize(("form", "registers"), [("v2.f32", "{%r1, %r2}"), ("v4.f32", "{%r1, %r2, %r3, %r4}")])
def test_vector_reductions(form: str, registers: str) -> None:
    n = int(form[1])
    data = np.arange(64 * n, dtype=np.float32)
    body = f"""mad.wide.u32 %at, %i, {4 * n}, %in; ld.global.v{n}.b32 {registers}, [%at];
red.global.add.{form} [%cell], {registers};"""
    report, cell, _ = _run(body, data, np.zeros(n, np.float32), 16)
    assert not report.findings
    np.testing.assert_array_equal(cell.view(np.float32), data.reshape(64, n).sum(0))


@pytest.mark.parametrize(("width", "register"), [(16, "%h"), (32, "%r"), (64, "%d"), (128, "%q")])
def test_compare_and_swap_takes_one_winner(width: int, register: str) -> None:
    pack = {
        16: "cvt.u16.u32 %h2, %r1; mov.b16 %h1, 0;",
        32: "mov.b32 %r2, %r1; mov.b32 %r1, 0;",
        64: "cvt.u64.u32 %d2, %r1; mov.b64 %d1, 0;",
        128: "cvt.u64.u32 %d2, %r1; mov.b64 %d1, 0; mov.b128 %q2, {%d2, %d2}; mov.b128 %q1, {%d1, %d1};",
    }[width]
    body = f"""add.u32 %r1, %i, 1; {pack}
atom.acq_rel.gpu.global.cas.b{width} {register}3, [%cell], {register}1, {register}2;
mad.wide.u32 %at, %i, {width // 8}, %out; st.global.b{width} [%at], {register}3;"""
    report, cell, out = _run(body, np.zeros(4, np.uint32), np.zeros(16, np.uint8), 64 * width // 8)
    assert not report.findings
    assert cell[0] == 1
    assert cell[8] == (width == 128)
    olds = out.reshape(64, width // 8)
    assert olds[0].sum() == 0  # thread 0 found zero
    assert (olds[1:, 0] == 1).all()


# Warp 1 hands `cell[1]` to warp 0 through a flag in cell[0].
_HAND_OVER = """
setp.ge.u32 %p1, %i, 32;
@%p1 bra PRODUCER;
WAIT: {read}
setp.eq.u32 %p2, %r1, 0;
@%p2 bra WAIT;
{after}
ld.global.b32 %r2, [%cell+4];
st.global.b32 [%out], %r2;
bra END;
PRODUCER:
setp.ne.u32 %p3, %i, 32;
@%p3 bra END;
mov.b32 %r3, 42;
st.global.b32 [%cell+4], %r3;
{before}
{write}
END:"""
_READS = {"acquire": "ld.acquire.gpu.global.b32 %r1, [%cell];", "relaxed": "ld.relaxed.gpu.global.b32 %r1, [%cell];"}
_READS["volatile"] = "ld.volatile.global.b32 %r1, [%cell];"
_READS["atomic"] = "atom.acquire.gpu.global.or.b32 %r1, [%cell], 0;"
_WRITES = {
    "release": "st.release.gpu.global.b32 [%cell], 1;",
    "relaxed": "st.relaxed.gpu.global.b32 [%cell], 1;",
    "volatile": "st.volatile.global.b32 [%cell], 1;",
    "red": "red.release.gpu.global.add.u32 [%cell], 1;",
    "atomic": "atom.relaxed.gpu.global.exch.b32 %r4, [%cell], 1;",
}
_FENCE = "fence.acq_rel.gpu;"
_HAND_OVERS = [
    ("acquire", "", "release", "", True),
    ("atomic", "", "red", "", True),
    ("relaxed", _FENCE, "relaxed", _FENCE, True),
    ("volatile", "membar.gl;", "volatile", "membar.gl;", True),
    ("acquire", "", "atomic", _FENCE, True),
    ("relaxed", _FENCE, "release", "", True),
    ("relaxed", "", "release", "", False),
    ("acquire", "", "relaxed", "", False),
    ("relaxed", _FENCE, "relaxed", "", False),
    ("relaxed", "", "relaxed", _FENCE, False),
    ("volatile", "", "volatile", "", False),
]


@pytest.mark.parametrize(("read", "after", "write", "before", "ordered"), _HAND_OVERS)
def test_release_and_acquire_order_what_they_should(
    read: str, after: str, write: str, before: str, ordered: bool
) -> None:
    body = _HAND_OVER.format(read=_READS[read], after=after, write=_WRITES[write], before=before)
    report, _, out = _run(body, np.zeros(4, np.uint32), np.zeros(2, np.uint32), 4)
    assert out.view(np.uint32)[0] == 42
    assert {f.rule for f in report.findings} == (set() if ordered else {"race"})


def test_plain_accesses_race_with_atomics() -> None:
    body = """setp.ge.u32 %p1, %i, 32; @%p1 red.global.add.u32 [%cell], 1; @!%p1 st.global.b32 [%cell], 1;"""
    report, _, _ = _run(body, np.zeros(4, np.uint32), np.zeros(1, np.uint32), 4)
    assert {f.rule for f in report.findings} == {"race"}


@pytest.mark.parametrize(
    "line",
    [
        "atom.global.add.f16 %h1, [%cell], %h2;",  # .noftz is missing
        "atom.global.inc.s32 %r1, [%cell], %r2;",
        "red.global.cas.b32 [%cell], %r1, %r2;",
        "red.shared.add.v2.f32 [tile], {%r1, %r2};",
    ],
)
def test_forms_that_are_not_modelled_are_refused(line: str) -> None:
    with pytest.raises(emulator.PtxError, match=line.split(".")[0]):
        _run(line, np.zeros(4, np.uint32), np.zeros(1, np.uint32), 4)
