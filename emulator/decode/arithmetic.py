"""Integer, bit, floating-point and predicate instructions, cvt (PTX ISA 9.7.1-9.7.9)."""

from __future__ import annotations

from collections.abc import Callable

from emulator._core import MODS
from emulator.decode.builder import Builder, width_of
from emulator.decode.modifiers import Modifiers
from emulator.ptx import Immediate, Negated, PredicatePair, Register

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f32", "f64")
_ROUNDING = {"rn": MODS["rn"]}


def _float_mods(b: Builder, m: Modifiers, type_name: str) -> int:
    """Rounding, .ftz and .sat. Only round-to-nearest-even is modelled for arithmetic."""
    bits = m.choose(_ROUNDING, 0)
    if m.take("ftz"):
        bits |= MODS["ftz"]
    if m.take("sat"):
        if type_name != "f32":
            b.fail(f".sat of .{type_name} is not modelled")
        bits |= MODS["sat"]
    return bits


def _operands(b: Builder, count: int) -> None:
    have = len(b.instruction.operands)
    if have != count:
        b.fail(f"{count} operands are expected, not {have}")


def add_sub(b: Builder, m: Modifiers) -> None:
    type_name = m.type((*INTEGERS, *FLOATS, "f32x2"))
    mods = 0
    if type_name in INTEGERS:
        if m.take("sat"):
            if type_name != "s32":
                b.fail(".sat needs .s32")
            mods = MODS["sat"]
    else:
        mods = _float_mods(b, m, type_name)
    m.done()
    _same_type(b, b.instruction.opcode, type_name, 2, mods)


def _same_type(b: Builder, op: str, type_name: str, sources: int, mods: int = 0) -> None:
    _operands(b, 1 + sources)
    d, *s = b.instruction.operands
    b.emit(op, type_name, dst=[b.dst(d, type_name)], src=[b.src(x, type_name) for x in s], mods=mods)


def multiply(b: Builder, m: Modifiers) -> None:
    """mul, mad: .lo, .hi, .wide for integers; mul for floats."""
    opcode = b.instruction.opcode
    part = m.choose({"lo": "lo", "hi": "hi", "wide": "wide"}, "")
    if not part:
        type_name = m.type((*FLOATS, "f32x2"))
        mods = _float_mods(b, m, type_name)
        m.done()
        _same_type(b, "mul" if opcode == "mul" else "fma", type_name, 2 if opcode == "mul" else 3, mods)
        return
    type_name = m.type(INTEGERS)
    m.done()
    if part != "wide":
        _same_type(b, f"{opcode}_{part}", type_name, 2 if opcode == "mul" else 3)
        return
    if type_name[1:] == "64":
        b.fail(".wide of a 64-bit type")
    wide = f"{type_name[0]}{2 * int(type_name[1:])}"
    _operands(b, 3 if opcode == "mul" else 4)
    d, x, y, *rest = b.instruction.operands
    src = [b.src(x, type_name), b.src(y, type_name), *(b.src(z, wide) for z in rest)]
    b.emit(f"{opcode}_wide", type_name, dst=[b.dst(d, wide)], src=src)


def fma(b: Builder, m: Modifiers) -> None:
    type_name = m.type((*FLOATS, "f32x2"))
    mods = _float_mods(b, m, type_name)
    m.done()
    _same_type(b, "fma", type_name, 3, mods)


def divide(b: Builder, m: Modifiers) -> None:
    type_name = m.type((*INTEGERS, *FLOATS))
    if type_name in INTEGERS:
        m.done()
        _same_type(b, "div", type_name, 2)
        return
    m.take("approx", "full")
    mods = _float_mods(b, m, type_name)
    m.done()
    _same_type(b, "div_f", type_name, 2, mods)


def remainder(b: Builder, m: Modifiers) -> None:
    type_name = m.type(INTEGERS)
    m.done()
    _same_type(b, "rem", type_name, 2)


def extreme(b: Builder, m: Modifiers) -> None:
    type_name = m.type((*INTEGERS, "f32"))
    mods = 0
    if type_name == "f32":
        mods |= MODS["ftz"] if m.take("ftz") else 0
        mods |= MODS["nan"] if m.take("NaN") else 0
    m.done()
    sources = len(b.instruction.operands) - 1
    if sources not in ((2, 3) if type_name == "f32" else (2,)):
        b.fail(f"{sources} sources")
    _same_type(b, b.instruction.opcode, type_name, sources, mods)


def sign(b: Builder, m: Modifiers) -> None:
    """abs, neg"""
    type_name = m.type(("s16", "s32", "s64", *FLOATS))
    mods = MODS["ftz"] if m.take("ftz") else 0
    m.done()
    _same_type(b, b.instruction.opcode, type_name, 1, mods)


def logic(b: Builder, m: Modifiers) -> None:
    type_name = m.type(("pred", "b16", "b32", "b64"))
    m.done()
    opcode = b.instruction.opcode
    _same_type(b, opcode, type_name, 1 if opcode == "not" else 2)


def shift(b: Builder, m: Modifiers) -> None:
    type_name = m.type(("b16", "b32", "b64", *INTEGERS))
    m.done()
    _operands(b, 3)
    d, x, n = b.instruction.operands
    b.emit(b.instruction.opcode, type_name, dst=[b.dst(d, type_name)], src=[b.src(x, type_name), b.src(n, "u32")])


def funnel_shift(b: Builder, m: Modifiers) -> None:
    direction = m.choose({"l": "shf_l", "r": "shf_r"})
    wrap = m.choose({"wrap": 1, "clamp": 0})
    m.need("b32")
    m.done()
    _operands(b, 4)
    d, *s = b.instruction.operands
    b.emit(direction, "b32", dst=[b.dst(d, "b32")], src=[b.src(x, "b32") for x in s], immediate=wrap)


def bit_field_extract(b: Builder, m: Modifiers) -> None:
    type_name = m.type(("u32", "s32", "u64", "s64"))
    m.done()
    _operands(b, 4)
    d, x, position, length = b.instruction.operands
    src = [b.src(x, type_name), b.src(position, "u32"), b.src(length, "u32")]
    b.emit("bfe", type_name, dst=[b.dst(d, type_name)], src=src)


def bit_field_insert(b: Builder, m: Modifiers) -> None:
    type_name = m.type(("b32",))
    m.done()
    _same_type(b, "bfi", type_name, 4)


def permute(b: Builder, m: Modifiers) -> None:
    type_name = m.type(("b32",))
    m.done()
    _same_type(b, "prmt", type_name, 3)


def lop3(b: Builder, m: Modifiers) -> None:
    m.need("b32")
    m.done()
    _operands(b, 5)
    d, x, y, z, table = b.instruction.operands
    if not isinstance(table, Immediate):
        b.fail("the table of lop3 is a constant")
    b.emit("lop3", "b32", dst=[b.dst(d, "b32")], src=[b.src(s, "b32") for s in (x, y, z)], immediate=table.bits)


def count_bits(b: Builder, m: Modifiers) -> None:
    """popc, clz: a u32 result; brev: a result of the source's type."""
    opcode = b.instruction.opcode
    type_name = m.type(("b32",) if opcode == "brev" else ("b32", "b64"))
    m.done()
    _operands(b, 2)
    d, x = b.instruction.operands
    result = type_name if opcode == "brev" else "u32"
    b.emit(opcode, type_name, dst=[b.dst(d, result)], src=[b.src(x, type_name)], width_dst=width_of(result))


def transcendental(b: Builder, m: Modifiers) -> None:
    """ex2, lg2, rcp, rsqrt, sqrt of f32. The approximate forms give a correctly rounded or nearly so result."""
    m.take("approx")
    mods = _float_mods(b, m, "f32")
    m.need("f32")
    m.done()
    _same_type(b, b.instruction.opcode, "f32", 1, mods)


_COMPARE = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5, "lo": 2, "ls": 3, "hi": 4, "hs": 5}
_COMPARE_FLOAT = {"equ": 6, "neu": 7, "ltu": 8, "leu": 9, "gtu": 10, "geu": 11, "num": 12, "nan": 13}


def setp(b: Builder, m: Modifiers) -> None:
    compare = m.choose({**_COMPARE, **_COMPARE_FLOAT})
    combine = m.choose({"and": 0, "or": 1, "xor": 2}, -1)
    mods = compare << MODS["cmp_shift"]
    mods |= MODS["ftz"] if m.take("ftz") else 0
    type_name = m.type((*INTEGERS, *FLOATS, "b16", "b32", "b64"))
    m.done()
    if compare >= 6 and type_name not in FLOATS:
        b.fail("an unordered comparison of integers")
    _operands(b, 3 + (combine >= 0))
    p, x, y, *rest = b.instruction.operands
    dst = [b.dst(d, "pred") for d in ((p.first, p.second) if isinstance(p, PredicatePair) else (p,))]
    src = [b.src(x, type_name), b.src(y, type_name)]
    if rest:
        unit, negated = b.pred(rest[0])
        src.append(unit)
        mods |= combine << MODS["bool_shift"] | (MODS["bool_negated"] if negated else 0)
    b.emit("setp", type_name, dst=dst, src=src, mods=mods)


def selp(b: Builder, m: Modifiers) -> None:
    type_name = m.type(("b16", "b32", "b64", *INTEGERS, *FLOATS))
    m.done()
    _operands(b, 4)
    d, x, y, p = b.instruction.operands
    if isinstance(p, Negated):
        b.fail("selp takes no negated predicate")
    b.emit("selp", type_name, dst=[b.dst(d, type_name)], src=[b.src(x, type_name), b.src(y, type_name), b.src(p, "pred")])


_CVT_ROUNDING = {name: MODS[name] for name in ("rn", "rz", "rm", "rp")} | {
    f"{name}i": MODS[name] | MODS["round_int"] for name in ("rn", "rz", "rm", "rp")
}


def convert(b: Builder, m: Modifiers) -> None:
    rounding = m.choose(_CVT_ROUNDING, -1)
    mods = max(rounding, 0)
    for name in ("ftz", "sat", "relu"):
        mods |= MODS[name] if m.take(name) else 0
    to, of = m.type(), m.type()
    m.done()
    if to in ("bf16x2",):
        if of != "f32" or rounding != MODS["rn"] or mods & (MODS["sat"] | MODS["ftz"]):
            b.fail("of the packing conversions only cvt.rn{.relu}.bf16x2.f32 is modelled")
        _operands(b, 3)
        d, high, low = b.instruction.operands
        b.emit("cvt_pack", to, type2=of, dst=[b.dst(d, to)], src=[b.src(high, of), b.src(low, of)], mods=mods)
        return
    _check_conversion(b, to, of, rounding, mods)
    _operands(b, 2)
    d, s = b.instruction.operands
    width_dst = width_of(d.type) if isinstance(d, Register) else width_of(to)
    width_src = width_of(s.type) if isinstance(s, Register) else width_of(of)
    dst, src = b.dst(d, to, any_width=True), b.src(s, of, any_width=True)
    b.emit("cvt", to, type2=of, dst=[dst], src=[src], mods=mods, width_dst=width_dst, width_src=width_src)


_INTEGRAL = {"u8", "s8", *INTEGERS}


def _check_conversion(b: Builder, to: str, of: str, rounding: int, mods: int) -> None:
    to_int, of_int = to in _INTEGRAL, of in _INTEGRAL
    known = to_int or to in ("f32", "f64", "bf16")
    known = known and (of_int or of in ("f32", "f64", "bf16"))
    if not known or mods & MODS["relu"] or (to == "bf16" and of != "f32") or (of == "bf16" and to != "f32"):
        b.fail(f"conversion from .{of} to .{to} is not modelled with these modifiers")
    if to_int and of_int and mods:
        b.fail("a modifier on an integer conversion is not modelled")
    if to_int and not of_int and not rounding & MODS["round_int"]:
        b.fail("a conversion to an integer needs .rni, .rzi, .rmi or .rpi")
    narrowing = (of_int and not to_int) or (to, of) in (("f32", "f64"), ("bf16", "f32"))
    if narrowing and (rounding != MODS["rn"] or mods & (MODS["sat"] | MODS["ftz"])):
        b.fail("of the rounding conversions only .rn is modelled")


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "add": add_sub,
    "sub": add_sub,
    "mul": multiply,
    "mad": multiply,
    "fma": fma,
    "div": divide,
    "rem": remainder,
    "min": extreme,
    "max": extreme,
    "abs": sign,
    "neg": sign,
    "and": logic,
    "or": logic,
    "xor": logic,
    "not": logic,
    "shl": shift,
    "shr": shift,
    "shf": funnel_shift,
    "bfe": bit_field_extract,
    "bfi": bit_field_insert,
    "prmt": permute,
    "lop3": lop3,
    "popc": count_bits,
    "clz": count_bits,
    "brev": count_bits,
    "ex2": transcendental,
    "lg2": transcendental,
    "rcp": transcendental,
    "rsqrt": transcendental,
    "sqrt": transcendental,
    "setp": setp,
    "selp": selp,
    "cvt": convert,
}
