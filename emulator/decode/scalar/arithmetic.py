"""Integer, bit and predicate instructions, comparisons; hands floating-point types on (PTX ISA 9.7.1-9.7.8)."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder, width_of
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.decode.scalar import floating
from fmha.emulator.decode.scalar.integers import carrying
from fmha.emulator.ptx import Immediate, Operand, PredicatePair, Sink

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f32", "f64")
REALS = (*floating.FLOATS, *floating.HALVES)
PAIRS = ("u16x2", "s16x2")


def add_sub(b: Builder, m: Modifiers) -> None:
    """add and sub: of integers, with carry, of floating-point numbers, of pairs."""
    opcode = b.instruction.opcode
    if m.take("cc"):
        carrying(b, m, f"carry_{opcode}", carry_in=False, carry_out=True)
        return
    type_name = m.type((*INTEGERS, *REALS, *(PAIRS if opcode == "add" else ())))
    if type_name in REALS:
        floating.arithmetic(b, m, opcode, type_name, 2)
        return
    mods = 0
    if m.take("sat"):
        if type_name != "s32":
            b.fail(".sat needs .s32")
        mods = MODS["sat"]
    m.done()
    _same_type(b, opcode, type_name, 2, mods)


def _same_type(b: Builder, op: str, type_name: str, sources: int, mods: int = 0) -> None:
    b.operands(1 + sources)
    d, *s = b.instruction.operands
    b.emit(op, type_name, dst=[b.dst(d, type_name)], src=[b.src(x, type_name) for x in s], mods=mods)


def multiply(b: Builder, m: Modifiers) -> None:
    """mul, mad: .wide of integers, .cc; mul of floats."""
    opcode = b.instruction.opcode
    if opcode == "mad" and m.take("cc"):
        carrying(b, m, "carry_mad", carry_in=False, carry_out=True)
        return
    if not m.take("wide"):
        type_name = m.type(REALS if opcode == "mul" else FLOATS)
        floating.arithmetic(b, m, "mul" if opcode == "mul" else "fma", type_name, 2 if opcode == "mul" else 3)
        return
    type_name = m.type(("u16", "s16", "u32", "s32"))
    m.done()
    wide = f"{type_name[0]}{2 * int(type_name[1:])}"
    d, x, y, *rest = b.operands(3 if opcode == "mul" else 4)
    src = [b.src(x, type_name), b.src(y, type_name), *(b.src(z, wide) for z in rest)]
    b.emit(f"{opcode}_wide", type_name, dst=[b.dst(d, wide)], src=src)


def extreme(b: Builder, m: Modifiers) -> None:
    """min and max."""
    type_name = m.type((*INTEGERS, *FLOATS, *floating.HALVES, *PAIRS))
    if type_name in REALS:
        floating.extreme(b, m, type_name)
        return
    mods = MODS["relu"] if type_name in ("s32", "s16x2") and m.take("relu") else 0
    m.done()
    _same_type(b, b.instruction.opcode, type_name, 2, mods)


def conditional_not(b: Builder, m: Modifiers) -> None:
    """cnot: 1 of zero, else 0."""
    type_name = m.type(("b16", "b32", "b64"))
    m.done()
    b.operands(2)
    d, x = b.instruction.operands
    is_zero = b.new_unit(1)
    mods = _COMPARE["eq"] << MODS["cmp_shift"]
    b.emit("setp", type_name, dst=[is_zero], src=[b.src(x, type_name), b.number(0, width_of(type_name))], mods=mods)
    ones = [b.number(n, width_of(type_name)) for n in (1, 0)]
    b.emit("selp", type_name, dst=[b.dst(d, type_name)], src=[*ones, is_zero])


def lop3_with_predicate(b: Builder, m: Modifiers) -> None:
    """lop3.BoolOp `d|p, a, b, c, table, q`: p = (d != 0) BoolOp q."""
    combine = m.choose({"and": 0, "or": 1})
    m.need("b32")
    m.done()
    d, x, y, z, table, q = b.operands(6)
    if not isinstance(table, Immediate):
        b.fail("the table of lop3 is a constant")
    if not isinstance(d, PredicatePair):
        b.fail("a result and a predicate are expected")
    result = b.new_unit(32) if isinstance(d.first, Sink) else b.dst(d.first, "b32")
    src = [b.src(s, "b32") for s in (x, y, z)]
    unit, negated = b.pred(q)
    mods = _COMPARE["ne"] << MODS["cmp_shift"] | combine << MODS["bool_shift"] | MODS["bool_negated"] * negated
    b.emit("lop3", "b32", dst=[result], src=src, immediate=table.bits)
    b.emit("setp", "b32", dst=[b.dst(d.second, "pred")], src=[result, b.number(0, 32), unit], mods=mods)


_COMPARE = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5, "lo": 2, "ls": 3, "hi": 4, "hs": 5}
_COMPARE_FLOAT = {"equ": 6, "neu": 7, "ltu": 8, "leu": 9, "gtu": 10, "geu": 11, "num": 12, "nan": 13}


def _comparison(b: Builder, m: Modifiers) -> tuple[int, str]:
    """The modifiers before the types: comparison, combination with a predicate, .ftz."""
    compare = m.choose({**_COMPARE, **_COMPARE_FLOAT})
    combine = m.choose({"and": 0, "or": 1, "xor": 2}, -1)
    mods = compare << MODS["cmp_shift"]
    if combine >= 0:
        mods |= combine << MODS["bool_shift"]
    mods |= MODS["ftz"] if m.take("ftz") else 0
    return mods, "combined" if combine >= 0 else ""


def _compared(b: Builder, operands: tuple[Operand, ...], type_name: str, mods: int) -> tuple[list[int], int]:
    if (mods >> MODS["cmp_shift"] & 0x1F) >= 6 and type_name not in (*FLOATS, *floating.HALVES):
        b.fail("an unordered comparison of integers")
    x, y, *rest = operands
    src = [b.src(x, type_name), b.src(y, type_name)]
    if rest:
        unit, negated = b.pred(rest[0])
        src.append(unit)
        mods |= MODS["bool_negated"] if negated else 0
    return src, mods


def setp(b: Builder, m: Modifiers) -> None:
    """setp, of one predicate or two, with a predicate combined."""
    mods, combined = _comparison(b, m)
    type_name = m.type((*INTEGERS, *FLOATS, *floating.HALVES, "b16", "b32", "b64"))
    m.done()
    b.operands(3 + bool(combined))
    p, *s = b.instruction.operands
    dst = [b.dst(d, "pred") for d in ((p.first, p.second) if isinstance(p, PredicatePair) else (p,))]
    src, mods = _compared(b, tuple(s), type_name, mods)
    b.emit("setp", type_name, dst=dst, src=src, mods=mods)


def set_value(b: Builder, m: Modifiers) -> None:
    """set: the result of a comparison as all ones or 1.0; of two pairs as one for each half."""
    mods, combined = _comparison(b, m)
    to = m.type(("u16", "s16", "u32", "s32", "f32", *floating.HALVES))
    of = m.type((*INTEGERS, *FLOATS, *floating.HALVES, "b16", "b32", "b64"))
    m.done()
    paired = to.endswith("x2") or of.endswith("x2")
    if paired and to != of and not (of.endswith("x2") and to in ("u32", "s32")):
        b.fail(f"there is no set.{to}.{of}")
    b.operands(3 + bool(combined))
    d, *s = b.instruction.operands
    src, mods = _compared(b, tuple(s), of, mods)
    b.emit("set", to, type2=of, dst=[b.dst(d, to)], src=src, mods=mods)


def selp(b: Builder, m: Modifiers) -> None:
    """selp."""
    type_name = m.type(("b16", "b32", "b64", *INTEGERS, *FLOATS))
    m.done()
    b.operands(4)
    d, x, y, p = b.instruction.operands
    unit, negated = b.pred(p)
    values = [b.src(x, type_name), b.src(y, type_name)]
    b.emit("selp", type_name, dst=[b.dst(d, type_name)], src=[*(reversed(values) if negated else values), unit])


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "add": add_sub,
    "sub": add_sub,
    "mul": multiply,
    "mad": multiply,
    "div": floating.divide,
    "min": extreme,
    "max": extreme,
    "cnot": conditional_not,
    "lop3": lop3_with_predicate,
    "setp": setp,
    "set": set_value,
    "selp": selp,
}
