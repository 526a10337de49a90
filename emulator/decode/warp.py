"""What the lanes of a warp tell one another: elect, vote, shfl, redux, match (PTX ISA 9.7.9, 9.7.13)."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.memory.atomics import ATOM_CODES
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Operand, PredicatePair


def _pair(b: Builder, operand: Operand, first: str, second: str) -> list[int]:
    if isinstance(operand, PredicatePair):
        return [b.dst(operand.first, first), b.dst(operand.second, second)]
    return [b.dst(operand, first), -1]


_VOTES = {"all": 0, "any": 1, "uni": 2, "ballot": 3}


def _members(b: Builder, operands: tuple[Operand, ...]) -> int:
    """The member mask, which comes last. The forms without .sync, of before sm_70, have none: ptxas takes them for
    later targets all the same, and they are of the lanes that execute them together."""
    if operands:
        return b.src(operands[0], "b32")
    active = b.new_unit(32)
    b.emit("activemask", "b32", dst=[active])
    return active


def vote(b: Builder, m: Modifiers) -> None:
    """vote.all, .any, .uni and .ballot."""
    sync = m.take("sync")
    mode = m.choose(_VOTES)
    result = m.type(("pred", "b32"))
    m.done()
    if (result == "b32") != (mode == 3):
        b.fail("vote.ballot gives .b32, the others .pred")
    if len(b.instruction.operands) != 2 + sync:
        b.fail(f"{2 + sync} operands are expected")
    d, p, *members = b.instruction.operands
    unit, negated = b.pred(p)
    src = [unit, _members(b, tuple(members))]
    b.emit("vote", result, dst=[b.dst(d, result)], src=src, mods=mode << MODS["vote_shift"], immediate=int(negated))


def shuffle(b: Builder, m: Modifiers) -> None:
    """shfl: values of other lanes."""
    sync = m.take("sync")
    mode = m.choose({"up": 0, "down": 1, "bfly": 2, "idx": 3})
    m.need("b32")
    m.done()
    if len(b.instruction.operands) != 4 + sync:
        b.fail(f"{4 + sync} operands are expected")
    d, *s = b.instruction.operands
    src = [*(b.src(x, "b32") for x in s[:3]), _members(b, tuple(s[3:]))]
    b.emit("shfl", "b32", dst=_pair(b, d, "b32", "pred"), src=src, mods=mode << MODS["shfl_shift"])


def reduce(b: Builder, m: Modifiers) -> None:
    """redux.sync"""
    m.need("sync")
    operation = m.choose({name: name for name in ("add", "and", "or", "xor", "min", "max")})
    mods = ATOM_CODES[operation] << MODS["atom_shift"]
    absolute, nan = m.take("abs"), m.take("NaN")
    logic = operation in ("and", "or", "xor")
    type_name = m.type(("b32",) if logic else ("u32", "s32") if operation == "add" else ("u32", "s32", "f32"))
    m.done()
    if (absolute or nan) and type_name != "f32":
        b.fail(".abs and .NaN need .f32")
    mods |= MODS["abs"] * absolute | MODS["nan"] * nan
    d, a, members = b.operands(3)
    b.emit("redux", type_name, dst=[b.dst(d, type_name)], src=[b.src(a, type_name), b.src(members, "b32")], mods=mods)


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "vote": vote,
    "shfl": shuffle,
    "redux": reduce,
}
