"""The less common integer instructions (PTX ISA 9.7.1, 9.7.2, 9.7.7): masks, carries, dot products, selections."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")


def carrying(b: Builder, m: Modifiers, op: str, carry_in: bool, carry_out: bool) -> None:
    """add.cc, addc{.cc}, sub.cc, subc{.cc}, mad{.lo,.hi}.cc, madc{.lo,.hi}{.cc}. CC.CF is a predicate of its own."""
    if op == "carry_mad":
        op = m.choose({"lo": "carry_mad_lo", "hi": "carry_mad_hi"})
    type_name = m.type(("u32", "s32", "u64", "s64"))
    m.done()
    d, *s = b.operands(4 if "mad" in op else 3)
    flag = b.condition_code()
    dst = [b.dst(d, type_name)] + [flag] * carry_out
    src = [b.src(x, type_name) for x in s] + [flag] * carry_in
    mods = MODS["carry_in"] * carry_in | MODS["carry_out"] * carry_out
    b.emit(op, type_name, dst=dst, src=src, mods=mods)


_CARRY_IN = {"addc": "carry_add", "subc": "carry_sub", "madc": "carry_mad"}


def with_carry(b: Builder, m: Modifiers) -> None:
    """addc, subc and madc."""
    carrying(b, m, _CARRY_IN[b.instruction.opcode], carry_in=True, carry_out=m.take("cc"))


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = dict.fromkeys(_CARRY_IN, with_carry)
