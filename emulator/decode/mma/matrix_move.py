"""ldmatrix, stmatrix, movmatrix (PTX ISA 9.7.14.5.15-17)."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Operand, Register, Vector

_SHAPES = {"m8n8": 0, "m8n16": 1, "m16n16": 2, "m16n8": 3}
_FORMATS = {"b6x16_p32": 1, "b4x16_p64": 2}


def _space(m: Modifiers) -> int:
    return 0 if m.take("shared", "shared::cta") else MODS["mat_generic"]


def _registers(b: Builder, operand: Operand, count: int) -> tuple[Operand, ...]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        b.fail(f"{count} registers are expected, not {len(items)}")
    return items


def _move(m: Modifiers, shapes: tuple[str, ...]) -> tuple[str, int, int]:
    """(shape, matrices, modifier bits) of ldmatrix and stmatrix, without the format."""
    m.need("sync", "aligned")
    shape = m.choose({name: name for name in shapes})
    count = m.choose({"x1": 1, "x2": 2, "x4": 4})
    mods = MODS["mat_trans"] if m.take("trans") else 0
    mods |= _space(m) | _SHAPES[shape] << MODS["mat_shape_shift"] | count << MODS["mat_count_shift"]
    return shape, count, mods


def ldmatrix(b: Builder, m: Modifiers) -> None:
    """ldmatrix: fragments from shared memory."""
    shape, count, mods = _move(m, ("m8n8", "m8n16", "m16n16"))
    packed = m.take("b8x16")
    if packed:
        mods |= m.choose(_FORMATS) << MODS["mat_format_shift"]
    else:
        m.need("b16" if shape == "m8n8" else "b8")
    m.done()
    if shape != "m8n8" and int("".join(filter(str.isdigit, b.module.target))) < 100:
        b.fail(f"ldmatrix.{shape} needs target sm_100a, the module is for {b.module.target}")
    if (shape == "m8n8" and packed) or (shape == "m8n16" and not packed):
        b.fail(f".{shape} does not go with this type")
    if (shape == "m16n16") != bool(mods & MODS["mat_trans"]) and shape != "m8n8":
        b.fail(".trans is mandatory for .m16n16 and not available for .m8n16")
    if shape == "m16n16" and count == 4:
        b.fail(".m16n16 has .x1 and .x2 only")
    d, source = b.operands(2)
    items = _registers(b, d, 2 * count if shape == "m16n16" else count)
    unit, width, offset = b.address(source, "shared")
    dst = [b.dst(x, "b32") for x in items]
    b.emit("ldmatrix", "b32", dst=dst, src=[unit], mods=mods, immediate=offset, width_src=width, aligned=True)


def stmatrix(b: Builder, m: Modifiers) -> None:
    """stmatrix: fragments to shared memory."""
    shape, count, mods = _move(m, ("m8n8", "m16n8"))
    m.need("b16" if shape == "m8n8" else "b8")
    m.done()
    if shape == "m16n8" and not mods & MODS["mat_trans"]:
        b.fail(".trans is mandatory for .m16n8")
    target, s = b.operands(2)
    items = _registers(b, s, count)
    unit, width, offset = b.address(target, "shared")
    src = [unit, *(b.src(x, "b32") for x in items)]
    b.emit("stmatrix", "b32", src=src, mods=mods, immediate=offset, width_dst=width, aligned=True)


def movmatrix(b: Builder, m: Modifiers) -> None:
    """movmatrix: a fragment transposed."""
    m.need("sync", "aligned", "m8n8", "trans", "b16")
    m.done()
    d, s = b.operands(2)
    if not isinstance(d, Register):
        b.fail("a destination register is expected")
    b.emit("movmatrix", "b32", dst=[b.dst(d, "b32")], src=[b.src(s, "b32")], aligned=True)


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "ldmatrix": ldmatrix,
    "stmatrix": stmatrix,
    "movmatrix": movmatrix,
}
