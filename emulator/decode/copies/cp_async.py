"""cp.async that is not bulk (PTX ISA 9.7.9.25.3); hands the bulk forms on."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.copies import bulk
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.decode.policies import drop_policy
from fmha.emulator.ptx import Immediate, Negated, Operand, Register


def copy(b: Builder, m: Modifiers) -> None:
    """cp.async: the bulk forms belong to `bulk`."""
    if m.has("bulk") or not m.take("async"):
        bulk.copy(b, m)
        return
    _copy(b, m)


def _offset_bits(offset: int) -> int:
    return offset & 0xFFFF_FFFF


def _copy(b: Builder, m: Modifiers) -> None:
    level = m.choose({"ca": "ca", "cg": "cg"})
    m.need("global")
    if not m.take("shared", "shared::cta"):
        b.fail("the destination of cp.async is in .shared")
    hint = m.take("L2::cache_hint")
    m.take("L2::64B", "L2::128B", "L2::256B")
    m.done()
    operands = drop_policy(b, b.instruction.operands, hint)
    if len(operands) not in (3, 4):
        b.fail("destination, source, cp-size and perhaps src-size or ignore-src are expected")
    target, source, size, *rest = operands
    if not isinstance(size, Immediate) or size.bits not in ((16,) if level == "cg" else (4, 8, 16)):
        b.fail(f"cp-size of .{level} is {'16' if level == 'cg' else '4, 8 or 16'}")
    mods = size.bits << MODS["copy_bytes_shift"]
    to, to_width, to_offset = b.address(target, "shared")
    of, of_width, of_offset = b.address(source, "global")
    mods |= (MODS["copy_wide_destination"] if to_width == 64 else 0) | (
        MODS["copy_wide_source"] if of_width == 64 else 0
    )
    src = [to, of]
    for operand in rest:
        unit, bits = _limit(b, operand)
        src.append(unit)
        mods |= bits
    if not all(-(1 << 31) <= offset < 1 << 31 for offset in (of_offset, to_offset)):
        b.fail("the offset of an address has more than 32 bits")
    offsets = of_offset << 32 | _offset_bits(to_offset)
    b.emit("cp_async", "b32", src=src, mods=mods, immediate=offsets)


def _limit(b: Builder, operand: Operand) -> tuple[int, int]:
    """The fourth operand: ignore-src is a predicate, src-size a number."""
    if isinstance(operand, Negated) or (isinstance(operand, Register) and operand.type == "pred"):
        unit, negated = b.pred(operand)
        return unit, MODS["copy_ignore"] | (MODS["copy_ignore_negated"] if negated else 0)
    return b.src(operand, "u32"), MODS["copy_size"]


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "cp": copy,
}
