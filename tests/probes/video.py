"""Video instructions: each operation over whole words, parts of words and lanes, with every ending. PTX, a kernel an
operation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.probes.case import Case, In, Out, hashed32

_THREADS = 512
_TYPES = [".".join(types) for types in product(("u32", "s32"), repeat=3)]
_EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80808080, 31, 32, 33)


def _words(op: str) -> Iterator[str]:
    turn = 0
    parts = ("b0", "b1", "b2", "b3", "h0", "h1")
    for types, sat, ending in product(_TYPES, ("", ".sat"), ("", ".add", "merge")):
        to, first, second = types.split(".")
        shifts, compares = op in ("shl", "shr"), op == "set"
        if (shifts and second != "u32") or (compares and (to != "u32" or sat)):
            continue
        turn += 1
        mode = (
            (".wrap", ".clamp")[turn % 2] if shifts else f".{('eq', 'ne', 'lt', 'le', 'gt', 'ge')[turn % 6]}" * compares
        )
        names = f"{first}.{second}" if compares else types
        a, b, d = (parts[(turn * k) % 6] for k in (1, 5, 7))
        added, merged = ".add" * (ending == ".add"), f".{d}" * (ending == "merge")
        third = ", %c" * bool(ending)
        for of_a, of_b in (("", ""), (f".{a}", f".{b}")):
            yield f"v{op}.{names}{sat}{mode}{added} %d{merged}, %a{of_a}, %b{of_b}{third};"


def _lanes(op: str, count: int) -> Iterator[str]:
    letter, turn = "h" if count == 2 else "b", 0
    masks = ("h0", "h1", "h10") if count == 2 else ("b0", "b21", "b310", "b3210")
    for types, ending in product(_TYPES, ("", ".sat", ".add")):
        if op == "set" and (types[:3] != "u32" or ending == ".sat"):
            continue
        turn += 1
        names = types[4:] + f".{('eq', 'ne', 'lt', 'le', 'gt', 'ge')[turn % 6]}" if op == "set" else types
        a, b = ("".join(str((turn * k + j * (k + 1)) % (2 * count)) for j in range(count)) for k in (3, 5))
        yield f"v{op}{count}.{names}{ending} %d, %a, %b, %c;"
        yield f"v{op}{count}.{names}{ending} %d.{masks[turn % len(masks)]}, %a.{letter}{a}, %b.{letter}{b}, %c;"


def _products() -> Iterator[str]:
    for signs in ("   ", "-  ", " - ", "  -", "-- "):
        a, b, c = (sign.strip() + name for sign, name in zip(signs, ("%a", "%b", "%c"), strict=True))
        yield f"vmad.s32.s32.s32 %d, {a}, {b}, {c};"
        for ending in (".sat", ".shr7", ".sat.shr15"):
            yield f"vmad.s32.s32.s32{ending} %d, {a}, {b}.h1, {c};"
            yield f"vmad.s32.u32.s32{ending} %d, {a}.b1, {b}, {c};"
    yield "vmad.u32.u32.u32 %d, %a, %b, %c;"
    yield "vmad.u32.u32.u32.po %d, %a.h0, %b, %c;"
    yield "vmad.s32.s32.s32.po.sat %d, %a, %b, %c;"


FORMS = {
    **{op: list(_words(op)) for op in ("add", "sub", "absdiff", "min", "max", "shl", "shr", "set")},
    **{
        f"{op}{count}": list(_lanes(op, count))
        for op, count in product(("add", "sub", "avrg", "absdiff", "min", "max", "set"), (2, 4))
    },
    "mad": list(_products()),
}


def _kernel(name: str) -> str:
    lines = [
        f".visible .entry video_{name}(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 po)",
        "{ .reg .b32 %a, %b, %c, %d, %i, %n; .reg .b64 %at, %p; mov.u32 %i, %tid.x; mov.u32 %n, %ctaid.x;",
        "mad.lo.u32 %i, %n, 128, %i; mul.wide.u32 %at, %i, 4;",
    ]
    for x in "abc":
        lines.append(f"ld.param.u64 %p, [p{x}]; add.s64 %p, %p, %at; ld.global.u32 %{x}, [%p];")
    lines.append(f"ld.param.u64 %p, [po]; mul.wide.u32 %at, %i, {4 * len(FORMS[name])}; add.s64 %p, %p, %at;")
    lines += [f"{form} st.global.u32 [%p+{4 * k}], %d;" for k, form in enumerate(FORMS[name])]
    return "\n".join([*lines, "ret; }"])


def ptx() -> str:
    return "\n".join([".version 8.6", ".target sm_90a", ".address_size 64", *map(_kernel, FORMS)]) + "\n"


def cases() -> Iterator[Case]:
    values = [hashed32(_THREADS, 700 + k) for k in range(3)]
    edges = np.array(list(product(_EDGES, _EDGES)), np.uint32)
    values[0][: len(edges)], values[1][: len(edges)] = edges.T
    for name, forms in FORMS.items():
        out = Out(np.zeros(_THREADS * len(forms), np.uint32))
        arguments = (*(In(v) for v in values), out)
        yield Case(f"video/{name}", "video", f"video_{name}", arguments, grid=(4, 1, 1), block=(128, 1, 1))
