"""Cases of atomics on global and shared memory, each thread on a place of its own, so that operands meet operands one
by one; of copies with cp.async; and of what warps and CTAs decide together. PTX is written here, an entry a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tests.probes.case import Arg, Array, Case, In, Out, hashed32
from tests.probes.inputs import operands

_THREADS = 128
_ELEMENTS = 1024
_KINDS = {  # type: kind of inputs.py, register, size of its .b type
    "u32": ("s32", "r", 32), "s32": ("s32", "r", 32), "b32": ("s32", "r", 32),
    "u64": ("s64", "l", 64), "s64": ("s64", "l", 64), "b64": ("s64", "l", 64),
    "f32": ("f32", "r", 32), "f64": ("f64", "l", 64), "b16": ("b16", "h", 16),
    "f16": ("f16", "h", 16), "bf16": ("bf16", "h", 16), "f16x2": ("f16x2", "r", 32), "bf16x2": ("bf16x2", "r", 32),
}  # fmt: skip
_ATOMICS = (
    *(f"{op}.u32" for op in ("add", "min", "max", "inc", "dec")),
    *(f"{op}.{t}" for t in ("b32", "b64") for op in ("and", "or", "xor", "exch")),
    *(f"{op}.{t}" for t in ("s32", "s64") for op in ("min", "max")),
    *(f"{op}.u64" for op in ("add", "min", "max")),
    *("add.s32", "add.f32", "add.f64"),
    *(f"add.noftz.{t}" for t in ("f16", "bf16", "f16x2", "bf16x2")),
    *(f"cas.{t}" for t in ("b16", "b32", "b64")),
)
# Of global memory alone: reductions of a vector of b32, as the ISA writes their operation and type.
_VECTORS = {"add.v4.f32": "f32", "add.v2.f32": "f32", "add.noftz.v4.f16x2": "f16x2", "add.noftz.v2.bf16x2": "bf16x2"}
_CTYPES = {"h": np.uint16, "r": np.uint32, "l": np.uint64}


def _entry_name(what: str) -> str:
    return what.replace(".", "_")


def _entry(name: str, parameters: Sequence[str], lines: Sequence[str]) -> list[str]:
    head = ", ".join(f".param .u64 {p}" for p in parameters)
    start = [
        ".reg .b16 %h<4>;", ".reg .b32 %r<16>, %thread, %i;", ".reg .b64 %l<4>, %at<4>;", ".reg .pred %p<4>;",
        "mov.u32 %thread, %tid.x;", "mov.u32 %i, %ctaid.x;", f"mad.lo.u32 %i, %i, {_THREADS}, %thread;",
    ]  # fmt: skip
    return [f".visible .entry {name}({head}) .maxntid {_THREADS}", "{", *start, *lines, "ret;", "}"]


def _place(n: int, parameter: str, size: int) -> list[str]:
    """%at<n>: element %i, of `size` bytes, of an array."""
    return [f"ld.param.u64 %at{n}, [{parameter}];", f"mad.wide.u32 %at{n}, %i, {size}, %at{n};"]


def _atomic(space: str, what: str) -> list[str]:
    """place = old op b (or c where cas finds b); the old value is returned, too."""
    _, register, bits = _KINDS[what.split(".")[-1]]
    size, cas = bits // 8, what.startswith("cas")
    lines = [line for n, p in enumerate(("place", "b", "c", "old")) for line in _place(n, p, size)]
    lines += [f"ld.global.b{bits} %{register}1, [%at1];", f"ld.global.b{bits} %{register}2, [%at2];"]
    operands_ = f"%{register}1, %{register}2" if cas else f"%{register}1"
    if space == "shared":
        lines += [
            f".shared .align 16 .b8 slots[{size * _THREADS}];", "mov.u32 %r8, slots;",
            f"mad.lo.u32 %r8, %thread, {size}, %r8;",
            f"ld.global.b{bits} %{register}3, [%at0];", f"st.shared.b{bits} [%r8], %{register}3;",
            f"atom.shared.{what} %{register}0, [%r8], {operands_};",
            f"ld.shared.b{bits} %{register}3, [%r8];", f"st.global.b{bits} [%at0], %{register}3;",
        ]  # fmt: skip
    else:
        lines.append(f"atom.global.{what} %{register}0, [%at0], {operands_};")
    lines.append(f"st.global.b{bits} [%at3], %{register}0;")
    return _entry(_entry_name(f"{space}_{what}"), ("place", "b", "c", "old"), lines)


def _vector(what: str) -> list[str]:
    n = 4 if "v4" in what else 2
    lines = [*_place(0, "place", 4 * n), *_place(1, "b", 4 * n)]
    registers = f"{{{', '.join(f'%r{i}' for i in range(n))}}}"
    lines += [f"ld.global.v{n}.b32 {registers}, [%at1];", f"red.global.{what} [%at0], {registers};"]
    return _entry(_entry_name(what), ("place", "b"), lines)


def _copy(size: int, cache: str) -> list[str]:
    """`size` bytes into shared memory that held ones, of which as many come from global memory as the lane says."""
    lines = [
        ".shared .align 16 .b8 slots[2048];", "mov.u32 %r8, slots;",
        "mad.lo.u32 %r8, %thread, 16, %r8;", "mov.b32 %r0, -1;",
        "st.shared.v4.b32 [%r8], {%r0, %r0, %r0, %r0};", *_place(0, "in", 16), *_place(1, "out", 16),
        f"rem.u32 %r1, %i, {size + 1};", f"cp.async.{cache}.shared.global [%r8], [%at0], {size}, %r1;",
        "cp.async.wait_all;", "ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%r8];",
        "st.global.v4.b32 [%at1], {%r0, %r1, %r2, %r3};",
    ]  # fmt: skip
    return _entry(f"copy_{size}", ("in", "out"), lines)


def _elect() -> list[str]:
    """Leaders of the lanes whose bits of the input are alike, and of the whole warp."""
    lines = [
        *_place(0, "in", 4), *_place(1, "out", 16), "ld.global.b32 %r0, [%at0];", "and.b32 %r0, %r0, 3;",
        "match.any.sync.b32 %r1, %r0, -1;", "setp.eq.u32 %p0, %r0, 0;", "mov.b32 %r4, 0;", "mov.b32 %r5, 0;",
        "elect.sync %r2|%p1, -1;", "selp.b32 %r3, 1, 0, %p1;", "@!%p0 bra $rest;",
        "elect.sync %r4|%p2, %r1;", "selp.b32 %r5, 1, 0, %p2;", "$rest:",
        "st.global.v4.b32 [%at1], {%r2, %r3, %r4, %r5};",
    ]  # fmt: skip
    return _entry("elect", ("in", "out"), lines)


def _decisions() -> list[str]:
    """Barriers that count and compare, of all threads and of two warps."""
    lines = [
        *_place(0, "in", 4), *_place(1, "out", 16), "ld.global.b32 %r0, [%at0];", "setp.gt.s32 %p0, %r0, 0;",
        "barrier.cta.red.popc.aligned.u32 %r1, 0, %p0;", "barrier.cta.red.and.aligned.pred %p1, 1, %p0;",
        "barrier.cta.red.or.aligned.pred %p2, 2, !%p0;", "shr.u32 %r2, %thread, 6;", "add.u32 %r2, %r2, 3;",
        "barrier.cta.red.popc.aligned.u32 %r2, %r2, 64, %p0;", "selp.b32 %r3, 1, 0, %p1;", "selp.b32 %r4, 1, 0, %p2;",
        "st.global.v4.b32 [%at1], {%r1, %r2, %r3, %r4};",
    ]  # fmt: skip
    return _entry("decisions", ("in", "out"), lines)


def _lanes() -> list[str]:
    names = ("laneid", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge", "tid.x", "ntid.x")
    lines = _place(0, "out", 4 * len(names))
    for i, name in enumerate(names):
        lines += [f"mov.u32 %r0, %{name};", f"st.global.b32 [%at0 + {4 * i}], %r0;"]
    return _entry("lanes", ("out",), lines)


def _transpose() -> list[str]:
    lines = [
        *_place(0, "in", 4), *_place(1, "out", 4), "ld.global.b32 %r0, [%at0];",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;", "st.global.b32 [%at1], %r1;",
    ]  # fmt: skip
    return _entry("transpose", ("in", "out"), lines)


_COPIES = {4: "ca", 8: "ca", 16: "cg"}


def ptx() -> str:
    entries = [_atomic(space, what) for space in ("global", "shared") for what in _ATOMICS]
    entries += [_vector(what) for what in _VECTORS]
    entries += [_copy(size, cache) for size, cache in _COPIES.items()]
    entries += [_elect(), _decisions(), _lanes(), _transpose()]
    head = [".version 8.6", ".target sm_90a", ".address_size 64", ""]
    return "\n".join([*head, *(line for entry in entries for line in entry), ""])


def _case(entry: str, arguments: tuple[Arg, ...], nan: str | None = None) -> Case:
    grid = (_ELEMENTS // _THREADS, 1, 1)
    return Case(f"memory/{entry}", "memory", entry, arguments, nan=nan, grid=grid, block=(_THREADS, 1, 1))


def _floating(kind: str) -> str | None:
    return kind if kind in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2") else None


def _equal_to_half(a: Array, b: Array) -> Array:
    """cas finds what it compares with in every second place."""
    return np.where(np.arange(a.size) % 2 == 0, a, b)


def cases() -> Iterator[Case]:
    for salt, what in enumerate(_ATOMICS):
        kind, register, _ = _KINDS[what.split(".")[-1]]
        a, b, c = operands((kind, kind, kind), _ELEMENTS, 400 + salt)
        b = _equal_to_half(a, b) if what.startswith("cas") else b
        for space in ("global", "shared"):
            old = Out(np.zeros(_ELEMENTS, _CTYPES[register]))
            yield _case(_entry_name(f"{space}_{what}"), (Out(a), In(b), In(c), old), _floating(kind))
    for salt, (what, kind) in enumerate(_VECTORS.items()):
        n = 4 if "v4" in what else 2
        a, b = operands((kind, kind), n * _ELEMENTS, 450 + salt)
        yield _case(_entry_name(what), (Out(a), In(b)), _floating(kind))
    words = hashed32(4 * _ELEMENTS, 460)
    for size in _COPIES:
        yield _case(f"copy_{size}", (In(words), Out(np.zeros(4 * _ELEMENTS, np.uint32))))
    for name in ("elect", "decisions"):
        yield _case(name, (In(words), Out(np.zeros(4 * _ELEMENTS, np.uint32))))
    yield _case("lanes", (Out(np.zeros(8 * _ELEMENTS, np.uint32)),))
    yield _case("transpose", (In(words), Out(np.zeros(_ELEMENTS, np.uint32))))
