"""Scalar probes: a table of one PTX instruction a row, the CUDA source made from it, and the cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tests.probes.case import Arg, Array, Case, In, Out, hashed32
from tests.probes.inputs import EDGES, operands

_WIDTH = {1: "h", 2: "h", 4: "r", 8: "l"}
CTYPE = {"h": "unsigned short", "r": "unsigned int", "l": "unsigned long long"}
DTYPE = {"h": np.uint16, "r": np.uint32, "l": np.uint64}


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    asm: str
    result: str  # register width: h, r, l
    inputs: tuple[str, ...]  # kinds of inputs.py
    nan: str | None = None
    words: int = 1  # results a thread
    domain: tuple[float, float] | None = None  # of an approximation, beside a sweep over all bit patterns


ROWS: list[Row] = []


def _add(asm: str, result: str, inputs: str, nan: str | None = None, words: int = 1) -> None:
    """`asm` without operands, which are then %0, %1, ...; with them where they are unusual."""
    kinds = tuple(inputs.split())
    name = asm.split("#")[-1].split(" ")[0].replace(".", "_").replace("::", "_")
    text = asm.split("#")[0]
    if "%0" not in text:
        text = f"{text} " + ", ".join(f"%{i}" for i in range(len(kinds) + 1)) + ";"
    ROWS.append(Row(name, text, result, kinds, nan, words))


def _predicate(instruction: str, inputs: str, name: str | None = None) -> None:
    arguments = ", ".join(f"%{i + 1}" for i in range(len(inputs.split())))
    text = f"{{ .reg .pred p; {instruction} p, {arguments}; selp.u32 %0, 1, 0, p; }}"
    _add(f"{text}#{name or instruction}", "r", inputs)


def _approximations() -> None:
    for name, low, high in (
        ("ex2", -20.0, 20.0), ("lg2", 0.25, 4.0), ("rcp", 0.5, 4.0), ("rsqrt", 0.5, 8.0), ("sqrt", 0.5, 8.0),
    ):  # fmt: skip
        for ftz in ("", ".ftz"):
            _approximation(f"{name}.approx{ftz}.f32", low, high)
    for name, limit in (("tanh", 5.0), ("sin", 3.0), ("cos", 3.0)):
        _approximation(f"{name}.approx.f32", -limit, limit)


def _approximation(asm: str, low: float, high: float) -> None:
    ROWS.append(Row(asm.replace(".", "_"), f"{asm} %0, %1;", "r", ("f32",), "f32", domain=(low, high)))


def _floats() -> None:
    for op in ("add", "sub", "mul"):
        for rounding in ("rn", "rz", "rm", "rp"):
            _add(f"{op}.{rounding}.f32", "r", "f32 f32", "f32")
        for form in ("rn.ftz", "rz.ftz", "rm.ftz", "rp.ftz", "rn.sat", "rn.ftz.sat"):
            _add(f"{op}.{form}.f32", "r", "f32 f32", "f32")
    for form in ("rn", "rz", "rm", "rp", "rn.ftz", "rz.ftz", "rm.ftz", "rp.ftz", "rn.sat", "rn.ftz.sat"):
        _add(f"fma.{form}.f32", "r", "f32 f32 f32", "f32")
    for op in ("div", "rcp", "sqrt"):
        for form in ("rn", "rz", "rm", "rp", "rn.ftz"):
            _add(f"{op}.{form}.f32", "r", "f32 f32" if op == "div" else "f32", "f32")
    for form in ("", ".ftz", ".NaN", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs"):
        for op in ("min", "max"):
            _add(f"{op}{form}.f32", "r", "f32 f32", "f32")
    for op in ("abs", "abs.ftz", "neg", "neg.ftz"):
        _add(f"{op}.f32", "r", "f32", "f32")
    _add("copysign.f32", "r", "f32 f32")
    for comparison in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
        _predicate(f"setp.{comparison}.f32", "f32 f32")
    for form in ("lt.ftz", "eq.ftz", "geu.ftz"):
        _predicate(f"setp.{form}.f32", "f32 f32")
    _add("set.lt.f32.f32", "r", "f32 f32")
    _add("set.geu.u32.f32", "r", "f32 f32")
    for what in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        _predicate(f"testp.{what}.f32", "f32")
    for op in ("add.rn.f64", "add.rz.f64", "mul.rn.f64", "mul.rp.f64", "div.rn.f64", "min.f64", "max.f64"):
        _add(op, "l", "f64 f64", "f64")
    for op in ("fma.rn.f64", "fma.rm.f64"):
        _add(op, "l", "f64 f64 f64", "f64")
    for op in ("sqrt.rn.f64", "rcp.rn.f64", "abs.f64", "neg.f64"):
        _add(op, "l", "f64", "f64")
    _predicate("setp.ltu.f64", "f64 f64")


def _halves() -> None:
    for t, bits in (("f16", "f16"), ("f16x2", "f16"), ("bf16", "bf16"), ("bf16x2", "bf16")):
        r = "r" if t.endswith("x2") else "h"
        for op in ("add.rn", "sub.rn", "mul.rn", "min", "max", "min.NaN", "max.NaN", "max.NaN.xorsign.abs"):
            _add(f"{op}.{t}", r, f"{t} {t}", t)
        for op in ("fma.rn", "fma.rn.relu"):
            _add(f"{op}.{t}", r, f"{t} {t} {t}", t)
        for op in ("abs", "neg"):
            _add(f"{op}.{t}", r, t, t)
        if bits == "f16":
            for op in ("add.sat", "mul.sat", "add.ftz", "mul.ftz"):
                _add(f"{op}.{t}", r, f"{t} {t}", t)
    for t in ("f16", "bf16"):
        for c in ("lt", "neu", "geu", "num"):
            _predicate(f"setp.{c}.{t}", f"{t} {t}")
    for op, t in (
        ("ex2.approx", "f16x2"),
        ("ex2.approx.ftz", "bf16x2"),
        ("tanh.approx", "f16x2"),
        ("tanh.approx", "bf16x2"),
    ):
        _add(f"{op}.{t}", "r", t, t)


def _conversions() -> None:
    for t in ("bf16", "f16"):
        for form in ("rn", "rz", "rn.relu", "rz.relu", "rn.satfinite", "rn.relu.satfinite"):
            _add(f"cvt.{form}.{t}.f32", "h", "f32", t)
            _add(f"cvt.{form}.{t}x2.f32", "r", "f32 f32", f"{t}x2")
    for form in ("rna", "rn", "rz", "rn.relu", "rna.satfinite"):
        _add(f"cvt.{form}.tf32.f32", "r", "f32", "f32")
    for t in ("e4m3x2", "e5m2x2"):
        for form in ("rn.satfinite", "rn.satfinite.relu"):
            _add(f"cvt.{form}.{t}.f32", "h", "f32 f32")
            _add(f"cvt.{form}.{t}.f16x2", "h", "f16x2")
        for form in ("rn", "rn.relu"):
            _add(f"cvt.{form}.f16x2.{t}", "r", "e8x2", "f16x2")
    _add("cvt.f32.f16", "r", "f16", "f32")
    _add("cvt.f32.bf16", "r", "bf16", "f32")
    _add("cvt.ftz.f32.f16", "r", "f16", "f32")
    for mode in ("rni", "rzi", "rmi", "rpi"):
        for ftz in ("", ".ftz"):
            for t, r in (("s32", "r"), ("u32", "r"), ("s64", "l"), ("u64", "l"), ("s16", "h"), ("u16", "h")):
                _add(f"cvt.{mode}{ftz}.{t}.f32", r, "f32")
            _add(f"cvt.{mode}{ftz}.f32.f32", "r", "f32", "f32")
        for t, r in (("s32", "r"), ("u32", "r"), ("s64", "l"), ("u64", "l")):
            _add(f"cvt.{mode}.{t}.f64", r, "f64")
        for t, r in (("s32", "r"), ("u16", "h"), ("s64", "l")):
            _add(f"cvt.{mode}.{t}.f16", r, "f16")
            _add(f"cvt.{mode}.{t}.bf16", r, "bf16")
    for rounding in ("rn", "rz", "rm", "rp"):
        _add(f"cvt.{rounding}.f32.s32", "r", "s32")
        _add(f"cvt.{rounding}.f32.u32", "r", "s32")
        _add(f"cvt.{rounding}.f32.s64", "r", "s64")
        _add(f"cvt.{rounding}.f32.u64", "r", "s64")
        _add(f"cvt.{rounding}.f64.s64", "l", "s64")
        _add(f"cvt.{rounding}.f32.f64", "r", "f64", "f32")
        _add(f"cvt.{rounding}.f16.s32", "h", "s32")
        _add(f"cvt.{rounding}.bf16.s32", "h", "s32")
    _add("cvt.rn.ftz.f32.f64", "r", "f64", "f32")
    _add("cvt.f64.f32", "l", "f32", "f64")
    _add("cvt.ftz.f64.f32", "l", "f32", "f64")
    _add("cvt.sat.f32.f32", "r", "f32")
    _add("cvt.rn.sat.f16.f32", "h", "f32")
    for t in ("s8", "u8", "s16", "u16"):
        _add(f"{{ .reg .b32 t; cvt.sat.{t}.s32 t, %1; mov.b32 %0, t; }}#cvt.sat.{t}.s32", "r", "s32")
        _add(f"{{ .reg .b32 t; cvt.sat.{t}.u32 t, %1; mov.b32 %0, t; }}#cvt.sat.{t}.u32", "r", "s32")
        _add(f"{{ .reg .b32 t; cvt.{t}.s32 t, %1; mov.b32 %0, t; }}#cvt.{t}.s32", "r", "s32")
    _add("cvt.sat.u32.s32", "r", "s32")
    _add("cvt.sat.s32.s64", "r", "s64")
    _add("cvt.s64.s32", "l", "s32")
    _add("cvt.u64.u32", "l", "s32")


def _integers() -> None:
    for t, r, kind in (
        ("u32", "r", "s32"),
        ("s32", "r", "s32"),
        ("u64", "l", "s64"),
        ("s64", "l", "s64"),
        ("u16", "h", "b16"),
        ("s16", "h", "b16"),
    ):
        _add(f"shr.{t}", r, f"{kind} shift")
        for op in ("div", "rem", "min", "max", "mul.lo", "mul.hi"):
            _add(f"{op}.{t}", r, f"{kind} {kind}")
        _predicate(f"setp.lt.{t}", f"{kind} {kind}")
    for t, r, kind in (("b32", "r", "s32"), ("b64", "l", "s64"), ("b16", "h", "b16")):
        _add(f"shl.{t}", r, f"{kind} shift")
    for t, r, kind in (("u32", "r", "s32"), ("s32", "r", "s32"), ("u64", "l", "s64"), ("s64", "l", "s64")):
        _add(f"bfe.{t}", r, f"{kind} byte byte")
        _add(f"bfind.{t}", "r", kind)
        _add(f"bfind.shiftamt.{t}", "r", kind)
    for t, r, kind in (("b32", "r", "s32"), ("b64", "l", "s64")):
        _add(f"bfi.{t}", r, f"{kind} {kind} byte byte")
        _add(f"popc.{t}", "r", kind)
        _add(f"clz.{t}", "r", kind)
        _add(f"brev.{t}", r, kind)
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        _add(f"prmt.b32{mode}", "r", "s32 s32 s32")
    for lut in (0x00, 0x96, 0xE8, 0xCA, 0x1B, 0xFF):
        _add(f"lop3.b32 %0, %1, %2, %3, {lut};#lop3_{lut:02x}", "r", "s32 s32 s32")
    for mode in ("l.wrap", "l.clamp", "r.wrap", "r.clamp"):
        _add(f"shf.{mode}.b32", "r", "s32 s32 shift")
    for t, wide in (("u32", "l"), ("s32", "l")):
        _add(f"mul.wide.{t}", wide, "s32 s32")
        _add(f"mad.wide.{t}", wide, "s32 s32 s64")
        _add(f"mad.hi.{t}", "r", "s32 s32 s32")
        _add(f"mad.lo.{t}", "r", "s32 s32 s32")
        _add(f"mul24.lo.{t}", "r", "s32 s32")
        _add(f"mul24.hi.{t}", "r", "s32 s32")
        _add(f"sad.{t}", "r", "s32 s32 s32")
        for mode in ("clamp", "wrap"):
            _add(f"szext.{mode}.{t}", "r", "s32 shift")
    for mode in ("clamp", "wrap"):
        _add(f"bmsk.{mode}.b32", "r", "shift shift")
    _add("mad.hi.sat.s32", "r", "s32 s32 s32")
    _add("add.sat.s32", "r", "s32 s32")
    _add("sub.sat.s32", "r", "s32 s32")
    for op in ("abs", "neg"):
        _add(f"{op}.s32", "r", "s32")
        _add(f"{op}.s64", "l", "s64")
    _add("fns.b32", "r", "s32 five few")
    for a in ("u32", "s32"):
        for b in ("u32", "s32"):
            _add(f"dp4a.{a}.{b}", "r", "s32 s32 s32")
            _add(f"dp2a.lo.{a}.{b}", "r", "s32 s32 s32")
            _add(f"dp2a.hi.{a}.{b}", "r", "s32 s32 s32")
    _add("slct.s32.f32", "r", "s32 s32 f32")
    _add("slct.ftz.s32.f32", "r", "s32 s32 f32")
    _add("slct.u32.s32", "r", "s32 s32 s32")
    for op in ("add", "sub"):
        text = f"{{ .reg .b32 t; {op}.cc.u32 t, %1, %2; {op}c.cc.u32 t, %3, t; {op}c.u32 %0, t, %1; }}"
        _add(f"{text}#{op}.cc", "r", "s32 s32 s32")
    _add("{ .reg .b32 t; mad.lo.cc.u32 t, %1, %2, %3; madc.hi.u32 %0, %1, %2, t; }#madc.hi", "r", "s32 s32 s32")


def _warp_wide() -> None:
    for mode in ("up", "down", "bfly", "idx"):
        text = f"{{ .reg .pred p; shfl.sync.{mode}.b32 %0|p, %2, %3, %4, 0xffffffff; selp.u32 %1, 1, 0, p; }}"
        _add(f"{text}#shfl.{mode}", "r", "s32 shift s32", None, 2)
    for t in ("u32", "s32"):
        for op in ("add", "min", "max"):
            _add(f"redux.sync.{op}.{t} %0, %1, 0xffffffff;#redux.{op}.{t}", "r", "s32")
    for op in ("and", "or", "xor"):
        _add(f"redux.sync.{op}.b32 %0, %1, 0xffffffff;#redux.{op}.b32", "r", "s32")
    _add("match.any.sync.b32 %0, %1, 0xffffffff;#match.any.b32", "r", "member2")
    text = "{ .reg .pred p; match.all.sync.b32 %0|p, %2, 0xffffffff; selp.u32 %1, 1, 0, p; }"
    _add(f"{text}#match.all.b32", "r", "member2", None, 2)
    text = "{ .reg .pred p; setp.lt.s32 p, %1, %2; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
    _add(f"{text}#vote.ballot", "r", "s32 s32")
    for op in ("all", "any", "uni"):
        text = (
            f"{{ .reg .pred p, q; setp.ne.s32 p, %1, %2; vote.sync.{op}.pred q, p, 0xffffffff; selp.u32 %0, 1, 0, q; }}"
        )
        _add(f"{text}#vote.{op}", "r", "shift shift")


for _fill in (_approximations, _floats, _halves, _conversions, _integers, _warp_wide):
    _fill()
ROW_OF = {r.name: r for r in ROWS}


def letter(kind: str) -> str:
    """Of inline assembly, for a kind of input."""
    return "r" if kind == "member2" else _WIDTH[EDGES[kind].dtype.itemsize]


def source() -> str:
    return source_of(ROWS, "scalar.py")


def source_of(rows: list[Row], maker: str) -> str:
    """CUDA of all rows: one thread an element, as many elements as threads."""
    out = [f"// Made by {maker}: one kernel a row of its table.\n"]
    for r in rows:
        letters = [letter(k) for k in r.inputs]
        parameters = [f"const {CTYPE[x]}* a{i}" for i, x in enumerate(letters)]
        inputs = ", ".join(f'"{x}"(a{i}[i])' for i, x in enumerate(letters))
        results = ", ".join(f'"={r.result}"(d[{w}])' for w in range(r.words))
        stores = " ".join(f"out[i * {r.words} + {w}] = d[{w}];" for w in range(r.words))
        out.append(
            f'extern "C" __global__ void {r.name}({", ".join(parameters)}, {CTYPE[r.result]}* out) {{\n'
            f"    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n    {CTYPE[r.result]} d[{r.words}];\n"
            f'    asm volatile("{r.asm}" : {results} : {inputs});\n    {stores}\n}}\n'
        )
    return "\n".join(out)


def _approx_inputs(row: Row, n: int) -> Array:
    """Half a sweep over all bit patterns with the edges in front, half a sweep over the function's useful domain."""
    half = n // 2
    sweep = np.arange(half, dtype=np.uint64) * np.uint64((1 << 32) // half) + hashed32(half, 3) % np.uint32(
        (1 << 32) // half
    )
    sweep = sweep.astype(np.uint32)
    sweep[: len(EDGES["f32"])] = EDGES["f32"]
    assert row.domain
    low, high = row.domain
    if row.name.startswith(("sin", "cos")):  # no promise is made far from zero
        return np.linspace(low, high, n, dtype=np.float64).astype(np.float32).view(np.uint32)
    domain = np.linspace(low, high, n - half, dtype=np.float64).astype(np.float32).view(np.uint32)
    return np.concatenate([sweep, domain])


def _case(row: Row, salt: int) -> Case:
    if row.domain:
        small, large = _approx_inputs(row, 4096), _approx_inputs(row, 1 << 17)
        dense = (In(large), Out(np.zeros(large.size, np.uint32)))
        return replace(_launch(row, [small]), dense=dense)
    if row.inputs == ("member2",):
        return _launch(row, [hashed32(1024, salt) % np.repeat(np.arange(1, 33, dtype=np.uint32), 32)])
    n = {1: 640, 2: 1024, 3: 1024, 4: 1024}[len(row.inputs)]
    values = operands(row.inputs, n, salt)
    if row.name.startswith("shfl"):  # segment masks in bits 8..12, clamps in bits 0..4
        clamp = np.repeat(hashed32(n // 32, salt), 32)
        values[2] = np.where(
            np.arange(n) % 64 < 32, clamp & np.uint32(0x1F1F), np.uint32(31) | (clamp & np.uint32(3)) << np.uint32(11)
        )
        values[0] = np.arange(n, dtype=np.uint32) + np.uint32(1000)
    return _launch(row, values)


def _launch(row: Row, values: list[Array]) -> Case:
    n = values[0].size
    arguments: tuple[Arg, ...] = (*(In(v) for v in values), Out(np.zeros(n * row.words, DTYPE[row.result])))
    return Case(
        f"scalar/{row.name}", "scalar", row.name, arguments, nan=row.nan, grid=(n // 128, 1, 1), block=(128, 1, 1)
    )


def cases() -> Iterator[Case]:
    for salt, row in enumerate(ROWS):
        yield _case(row, salt)
