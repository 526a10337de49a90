"""The less common integer instructions (PTX ISA 9.7.1, 9.7.2, 9.7.7): masks, carries, dot products, selections."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Operand

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")


def _operands(b: Builder, count: int) -> tuple[Operand, ...]:
    if len(b.instruction.operands) != count:
        b.fail(f"{count} operands are expected, not {len(b.instruction.operands)}")
    return b.instruction.operands


def carrying(b: Builder, m: Modifiers, op: str, carry_in: bool, carry_out: bool) -> None:
    """add.cc, addc{.cc}, sub.cc, subc{.cc}, mad{.lo,.hi}.cc, madc{.lo,.hi}{.cc}. CC.CF is a predicate of its own."""
    if op == "carry_mad":
        op = m.choose({"lo": "carry_mad_lo", "hi": "carry_mad_hi"})
    type_name = m.type(("u32", "s32", "u64", "s64"))
    m.done()
    d, *s = _operands(b, 4 if "mad" in op else 3)
    flag = b.condition_code()
    dst = [b.dst(d, type_name)] + [flag] * carry_out
    src = [b.src(x, type_name) for x in s] + [flag] * carry_in
    mods = MODS["carry_in"] * carry_in | MODS["carry_out"] * carry_out
    b.emit(op, type_name, dst=dst, src=src, mods=mods)


_CARRY_IN = {"addc": "carry_add", "subc": "carry_sub", "madc": "carry_mad"}


def with_carry(b: Builder, m: Modifiers) -> None:
    carrying(b, m, _CARRY_IN[b.instruction.opcode], carry_in=True, carry_out=m.take("cc"))


def select_by_sign(b: Builder, m: Modifiers) -> None:
    mods = MODS["ftz"] if m.take("ftz") else 0
    type_name = m.type(("b16", "b32", "b64", *INTEGERS, "f32", "f64"))
    condition = m.type(("s32", "f32"))
    m.done()
    if mods and condition != "f32":
        b.fail(".ftz needs an .f32 condition")
    d, x, y, c = _operands(b, 4)
    src = [b.src(x, type_name), b.src(y, type_name), b.src(c, condition)]
    b.emit("slct", type_name, type2=condition, dst=[b.dst(d, type_name)], src=src, mods=mods)


_VIDEO = {"vadd": "add", "vsub": "sub", "vshl": "shl", "vshr": "shr"}


def video(b: Builder, m: Modifiers) -> None:
    """Of PTX ISA 9.7.18, the forms on whole words whose results wrap: they are two instructions of the usual kind."""
    opcode = b.instruction.opcode
    shifts = opcode in ("vshl", "vshr")
    to, first, second = (m.type(("u32", "s32")) for _ in range(3))
    if shifts and second != "u32":
        b.fail("the type of a shift's count is .u32")
    wraps = shifts and m.choose({"wrap": True, "clamp": False})
    added = m.take("add")
    m.done()
    d, x, y, *rest = _operands(b, 4 if added else 3)
    count = b.src(y, second)
    if wraps:
        within = b.new_unit(32)
        b.emit("and", "b32", dst=[within], src=[count, b.number(31, 32)])
        count = within
    result = b.dst(d, to)
    made = b.new_unit(32) if added else result
    b.emit(_VIDEO[opcode], "b32" if opcode == "vshl" else first, dst=[made], src=[b.src(x, first), count])
    if added:
        b.emit("add", to, dst=[result], src=[made, b.src(rest[0], to)])


_LANE_OPS = ("add", "sub", "min", "max", "absdiff", "set")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")  # as the core numbers them


def video_lanes(b: Builder, m: Modifiers) -> None:
    """PTX ISA 9.7.18.2 and 9.7.18.3, without masks, selectors and .add: of each half or byte, in 32 bits. The last
    source is what lanes outside a mask would get."""
    opcode = b.instruction.opcode
    op, lanes = opcode[1:-1], int(opcode[-1])
    width = 32 // lanes
    to = "u32" if op == "set" else m.type(("u32", "s32"))
    first, second = m.type(("u32", "s32")), m.type(("u32", "s32"))
    comparison = m.choose({name: n for n, name in enumerate(_COMPARISONS)}) if op == "set" else 0
    saturates = op != "set" and m.take("sat")
    m.done()
    d, x, y, rest = _operands(b, 4)
    sources = b.src(x, first), b.src(y, second)
    made = b.src(rest, to)
    low, high = (0, (1 << width) - 1) if to == "u32" else (-(1 << width - 1), (1 << width - 1) - 1)
    for lane in range(lanes):
        at, size = b.number(lane * width, 32), b.number(width, 32)
        u, v, result, total = (b.new_unit(32) for _ in range(4))
        b.emit("bfe", first, dst=[u], src=[sources[0], at, size])
        b.emit("bfe", second, dst=[v], src=[sources[1], at, size])
        if op == "set":
            chosen = b.new_unit(1)
            b.emit("setp", "s32", dst=[chosen], src=[u, v], mods=comparison << MODS["cmp_shift"])
            b.emit("selp", "b32", dst=[result], src=[b.number(1, 32), b.number(0, 32), chosen])
        elif op == "absdiff":
            b.emit("sub", "s32", dst=[result], src=[u, v])
            b.emit("abs", "s32", dst=[result], src=[result])
        else:
            b.emit(op, "s32", dst=[result], src=[u, v])
        if saturates:
            b.emit("max", "s32", dst=[result], src=[result, b.number(low, 32)])
            b.emit("min", "s32", dst=[result], src=[result, b.number(high, 32)])
        b.emit("bfi", "b32", dst=[total], src=[result, made, at, size])
        made = total
    b.emit("mov", "b32", dst=[b.dst(d, to)], src=[made])


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    **dict.fromkeys(_CARRY_IN, with_carry),
    "slct": select_by_sign,
    **dict.fromkeys(_VIDEO, video),
    **dict.fromkeys((f"v{op}{lanes}" for op in _LANE_OPS for lanes in (2, 4)), video_lanes),
}
