"""What is made of an address alone: cvta, isspacep, prefetches and other hints to caches (PTX ISA 9.7.9)."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import SPACES, Builder
from fmha.emulator.decode.modifiers import Modifiers


def convert_address(b: Builder, m: Modifiers) -> None:
    """cvta: to and from generic addresses."""
    op = "cvta_to" if m.take("to") else "cvta"
    space = m.choose({name: name for name in SPACES if name != "generic"})
    m.need("u64")
    m.done()
    d, s = b.operands(2)
    mods = SPACES[space] << MODS["space_shift"]
    b.emit(op, "u64", dst=[b.dst(d, "u64")], src=[b.src(s, "u64")], mods=mods)


def is_space(b: Builder, m: Modifiers) -> None:
    """isspacep: whether a generic address is in a space."""
    space = m.choose({name: name for name in SPACES if name != "generic"} | {"param::entry": "param"})
    m.done()
    p, a = b.operands(2)
    mods = SPACES[space] << MODS["space_shift"]
    b.emit("isspacep", "b64", dst=[b.dst(p, "pred")], src=[b.src(a, "u64")], mods=mods)


def prefetch(b: Builder, m: Modifiers) -> None:
    """Changes no state; its address is still an address."""
    space = m.choose({"global": "global", "local": "local", "param": "param", "const": "const"}, "generic")
    if not m.take("tensormap"):
        m.choose({"L1": 1, "L2": 2, "L2::evict_last": 3, "L2::evict_normal": 4})
    m.done()
    b.address(b.operands(1)[0], space)
    b.emit("nop")


def cache_line(b: Builder, m: Modifiers) -> None:
    """prefetchu, applypriority: hints. discard leaves the line's contents undetermined: unchanged is one of them."""
    m.choose({"global": 1}, 0)
    if b.instruction.opcode == "prefetchu":
        m.need("L1")
    elif b.instruction.opcode == "discard":
        m.need("L2")
    else:
        m.need("L2::evict_normal")
    m.done()
    address, *size = b.operands(1 if b.instruction.opcode == "prefetchu" else 2)
    b.address(address, "generic")
    for n in size:
        b.src(n, "u32")
    b.emit("nop")


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "cvta": convert_address,
    "isspacep": is_space,
    "prefetch": prefetch,
    "prefetchu": cache_line,
    "applypriority": cache_line,
    "discard": cache_line,
}
