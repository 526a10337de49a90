"""Chains through CC.CF, the carry flag: what sets it, what takes it, what does both. PTX, a kernel a type.

PTX ISA 9.7.2 calls the flag of a subtraction its borrow; ptxas makes a + ~b + CF of it, which shows where additions and
subtractions follow one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.probes.case import Case, In, Out
from tests.probes.inputs import operands

TYPES = ("u32", "s32", "u64", "s64")
_THREADS = 1024
_SETS = ("add.cc", "sub.cc", "mad.lo.cc", "mad.hi.cc")
_TAKES = ("addc", "subc", "madc.lo", "madc.hi")
CHAINS = [(a, b, c) for a, b, c in product(_SETS, ("", *(f"{x}.cc" for x in _TAKES)), _TAKES)]


def _text(op: str, type_name: str, to: str, sources: str) -> str:
    chosen = sources.split()[: 3 if "mad" in op else 2]
    return f"{op}.{type_name} {to}, {', '.join(chosen)};" if op else ""


def _kernel(type_name: str) -> str:
    bits = type_name[1:]
    lines = [
        f".visible .entry carries_{type_name}(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd,",
        f".param .u64 po) {{ .reg .b{bits} a, b, c, d, x, y, z; .reg .b64 at, out, in; .reg .b32 i, n;",
        "mov.u32 i, %tid.x; mov.u32 n, %ctaid.x; mad.lo.u32 i, n, 128, i;",
        f"mul.wide.u32 at, i, {int(bits) // 8}; mov.b{bits} y, 0;",
    ]
    for name in "abcd":
        lines.append(f"ld.param.u64 in, [p{name}]; add.s64 in, in, at; ld.global.b{bits} {name}, [in];")
    lines.append(f"ld.param.u64 out, [po]; mul.wide.u32 at, i, {len(CHAINS) * int(bits) // 8}; add.s64 out, out, at;")
    for k, (first, middle, last) in enumerate(CHAINS):
        text = _text(first, type_name, "x", "a b c") + _text(middle, type_name, "y", "b c d")
        lines.append(text + _text(last, type_name, "z", "c d a") + f"st.global.b{bits} [out+{k * int(bits) // 8}], z;")
    return "\n".join([*lines, "ret; }"])


# Chains of four, each link of a width of its own: the flag that one leaves another width takes.
MIXED = [
    ((first, widths[0]), *((link, width) for link, width in zip(links, widths[1:3], strict=True)), (last, widths[3]))
    for first, last in product(_SETS, _TAKES)
    for links in (("addc.cc", "subc.cc"), ("subc.cc", "addc.cc"), ("madc.lo.cc", "subc.cc"), ("addc.cc", "madc.hi.cc"))
    for widths in ((32, 64, 32, 64), (64, 32, 64, 32), (32, 32, 64, 64), (64, 64, 32, 32))
]


def _mixed() -> str:
    """Of each chain the last link's result, in 64 bits."""
    lines = [
        ".visible .entry carries_mixed(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd, .param .u64 po)",
        "{ .reg .b64 l<4>, m, at, out, in; .reg .b32 r<4>, q, i, n; mov.u32 i, %tid.x; mov.u32 n, %ctaid.x;",
        "mad.lo.u32 i, n, 128, i; mul.wide.u32 at, i, 8;",
    ]
    for k, name in enumerate("abcd"):
        lines.append(
            f"ld.param.u64 in, [p{name}]; add.s64 in, in, at; ld.global.b64 l{k}, [in]; cvt.u32.u64 r{k}, l{k};"
        )
    lines.append(f"ld.param.u64 out, [po]; mul.wide.u32 at, i, {len(MIXED) * 8}; add.s64 out, out, at;")
    for n, chain in enumerate(MIXED):
        for k, (op, width) in enumerate(chain):
            file, to = ("r", "q") if width == 32 else ("l", "m")
            sources = " ".join(f"{file}{(k + j) % 4}" for j in range(3))
            lines.append(_text(op, f"u{width}", to, sources))
        lines.append("cvt.u64.u32 m, q;" * (chain[-1][1] == 32) + f"st.global.b64 [out+{8 * n}], m;")
    return "\n".join([*lines, "ret; }"])


def ptx() -> str:
    kernels = [*map(_kernel, TYPES), _mixed()]
    return "\n".join([".version 8.6", ".target sm_90a", ".address_size 64", *kernels]) + "\n"


def cases() -> Iterator[Case]:
    for salt, type_name in enumerate((*TYPES, "mixed")):
        kind = "s32" if type_name.endswith("32") else "s64"
        values = operands((kind,) * 4, _THREADS, 500 + salt)
        out = np.zeros(_THREADS * len(MIXED if type_name == "mixed" else CHAINS), values[0].dtype)
        yield Case(
            f"carries/{type_name}",
            "carries",
            f"carries_{type_name}",
            (*(In(v) for v in values), Out(out)),
            grid=(_THREADS // 128, 1, 1),
            block=(128, 1, 1),
        )
