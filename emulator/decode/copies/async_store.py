"""st.async and red.async (PTX ISA 9.7.9 and 9.7.13): through an mbarrier to shared memory, or to global memory."""

from __future__ import annotations

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Vector

_STORED = ("b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
_REDUCTIONS = {
    "inc": (4, ("u32",)),
    "dec": (5, ("u32",)),
    "min": (2, ("u32", "s32")),
    "max": (3, ("u32", "s32")),
    "add": (1, ("u32", "s32", "u64")),
    "and": (6, ("b32",)),
    "or": (7, ("b32",)),
    "xor": (8, ("b32",)),
}


def goes_to_global(m: Modifiers) -> bool:
    """Takes .async. What goes to global memory completes nothing, and nobody can wait for it: it is performed when
    it is issued, one of the outcomes that the ISA allows, and decoded as st or red."""
    m.need("async")
    if not m.has("global"):
        return False
    m.take("mmio")
    m.take("weak")
    return True


def store(b: Builder, m: Modifiers) -> None:
    """st.async: a store that an mbarrier counts."""
    m.take("weak")
    _emit(b, m, 0, _STORED)


def reduction(b: Builder, m: Modifiers) -> None:
    """red.async: a reduction that an mbarrier counts."""
    m.take("relaxed")
    _emit(b, m, None, ())


def _emit(b: Builder, m: Modifiers, code: int | None, types: tuple[str, ...]) -> None:
    m.take("cluster")
    m.take("shared::cluster")
    m.need("mbarrier::complete_tx::bytes")
    if code is None:
        code, types = m.choose(_REDUCTIONS)
    vector = m.vector() if code == 0 else 1
    type_name = m.type(types)
    m.done()
    if len(b.instruction.operands) != 3:
        b.fail(f"3 operands are expected, not {len(b.instruction.operands)}")
    address, value, barrier = b.instruction.operands
    values = value.items if isinstance(value, Vector) else (value,)
    if len(values) != vector:
        b.fail(f"{vector} registers are expected, not {len(values)}")
    src = [
        b.address_value(address, "shared::cluster", 32),
        b.address_value(barrier, "shared::cluster", 32),
        *(b.src(x, type_name) for x in values),
    ]
    b.emit("store_async", type_name, src=src, mods=code << MODS["reduce_shift"])
