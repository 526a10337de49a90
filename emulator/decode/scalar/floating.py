"""Floating-point arithmetic of f16, bf16, f32, f64 and their pairs (PTX ISA 9.7.3-9.7.5)."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers

HALVES = ("f16", "bf16", "f16x2", "bf16x2")
FLOATS = ("f32", "f64", "f32x2")
_ROUNDING = {name: MODS[name] for name in ("rn", "rz", "rm", "rp")}


def emit(b: Builder, op: str, type_name: str, sources: int, mods: int = 0) -> None:
    """An instruction whose operands all have one type."""
    if len(b.instruction.operands) != 1 + sources:
        b.fail(f"{1 + sources} operands are expected, not {len(b.instruction.operands)}")
    d, *s = b.instruction.operands
    b.emit(op, type_name, dst=[b.dst(d, type_name)], src=[b.src(x, type_name) for x in s], mods=mods)


def _flags(m: Modifiers, *names: str) -> int:
    mods = 0
    for name in names:
        if m.take(name):
            mods |= MODS[name]
    return mods


def arithmetic(b: Builder, m: Modifiers, op: str, type_name: str, sources: int) -> None:
    """add, sub, mul, fma."""
    rounding = m.choose(_ROUNDING, 0)
    if type_name in HALVES:
        if rounding != MODS["rn"]:
            b.fail(f".{type_name} rounds to nearest only")
        # bf16 has neither .ftz nor .sat; of the half operations fma alone has .relu.
        allowed = ("ftz", "sat") if type_name.startswith("f16") else ()
        mods = _flags(m, *allowed, *(("relu", "oob") if op == "fma" else ()))
        if mods & MODS["oob"] and mods & (MODS["ftz"] | MODS["sat"]):
            b.fail(".oob excludes .ftz and .sat")
        m.done()
        emit(b, op, type_name, sources, mods)
        return
    mods = rounding
    if type_name != "f64":
        mods |= _flags(m, "ftz")
    if type_name == "f32":
        mods |= _flags(m, "sat")
        if m.take("f16"):
            _mixed(b, m, op, "f16", mods)
            return
        if m.take("bf16"):
            _mixed(b, m, op, "bf16", mods)
            return
    m.done()
    emit(b, op, type_name, sources, mods)


def _mixed(b: Builder, m: Modifiers, op: str, narrow: str, mods: int) -> None:
    """add, sub, fma .f32.{f16, bf16}: the first operands are narrow, the last is f32 (PTX ISA 9.7.5)."""
    m.done()
    if op == "mul" or len(b.instruction.operands) != (4 if op == "fma" else 3):
        b.fail(f"there is no such form of {op}")
    d, *narrow_operands, last = b.instruction.operands
    src = []
    for operand in narrow_operands:
        unit = b.new_unit(32)
        b.emit("cvt", "f32", type2=narrow, dst=[unit], src=[b.src(operand, narrow)], width_dst=32, width_src=16)
        src.append(unit)
    b.emit(op, "f32", dst=[b.dst(d, "f32")], src=[*src, b.src(last, "f32")], mods=mods)


def fma(b: Builder, m: Modifiers) -> None:
    """fma."""
    arithmetic(b, m, "fma", m.type((*FLOATS, *HALVES)), 3)


def divide(b: Builder, m: Modifiers) -> None:
    """div of floating-point numbers."""
    type_name = m.type(("f32", "f64"))
    approximate = _flags(m, "approx") or _flags(m, "full")
    rounding = m.choose(_ROUNDING, MODS["rn"] if approximate else -1)
    if rounding < 0 or (approximate and (rounding != MODS["rn"] or type_name != "f32")):
        b.fail("div of floating-point numbers is .approx, .full, .rn, .rz, .rm or .rp")
    mods = rounding | approximate | (_flags(m, "ftz") if type_name == "f32" else 0)
    m.done()
    emit(b, "div_f", type_name, 2, mods)


def extreme(b: Builder, m: Modifiers, type_name: str) -> None:
    """min, max: two sources, or three of f32."""
    mods = 0
    if type_name != "f64":
        mods = _flags(m, "ftz") | (MODS["nan"] if m.take("NaN") else 0)
    sources = len(b.instruction.operands) - 1
    if type_name != "f64" and m.take("xorsign"):
        m.need("abs")
        mods |= MODS["xorsign_abs"]
    if type_name == "f32" and m.take("abs"):
        mods |= MODS["abs"]
    m.done()
    three = type_name == "f32" and sources == 3 and not mods & MODS["xorsign_abs"]
    if not (three or (sources == 2 and not mods & MODS["abs"])):
        b.fail(f"there is no such form of {b.instruction.opcode} with {sources} sources")
    emit(b, b.instruction.opcode, type_name, sources, mods)


def root(b: Builder, m: Modifiers) -> None:
    """rcp, sqrt, rsqrt."""
    opcode = b.instruction.opcode
    approximate = _flags(m, "approx")
    rounding = MODS["rn"] if approximate else -1 if opcode == "rsqrt" else m.choose(_ROUNDING, -1)
    if rounding < 0:
        b.fail(".approx or a rounding is expected")
    flushed = _flags(m, "ftz")
    type_name = m.type(("f32", "f64"))
    m.done()
    if type_name == "f64" and approximate and not (flushed and opcode in ("rcp", "rsqrt")):
        # ptxas refines rsqrt.approx.f64 to nearly full precision.
        if opcode != "rsqrt":
            b.fail(f"there is no {opcode}.approx.f64" + (" without .ftz" if opcode == "rcp" else ""))
        approximate = 0
    emit(b, opcode, type_name, 1, rounding | approximate | flushed)


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "fma": fma,
    **dict.fromkeys(("rcp", "rsqrt", "sqrt"), root),
}
