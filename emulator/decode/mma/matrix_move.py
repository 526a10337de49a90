"""ldmatrix, stmatrix, movmatrix (PTX ISA 9.7.14.5.15-17) and non-bulk cp.async (9.7.9.25.3)."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.copies import bulk
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.decode.policies import drop_policy
from fmha.emulator.ptx import Address, Immediate, Negated, Operand, Register, Vector

_SHAPES = {"m8n8": 0, "m8n16": 1, "m16n16": 2, "m16n8": 3}
_FORMATS = {"b6x16_p32": 1, "b4x16_p64": 2}


def _space(m: Modifiers) -> int:
    return 0 if m.take("shared", "shared::cta") else MODS["mat_generic"]


def _registers(b: Builder, operand: Operand, count: int) -> tuple[Operand, ...]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        b.fail(f"{count} registers are expected, not {len(items)}")
    return items


def _operands(b: Builder, count: int) -> tuple[Operand, ...]:
    operands = b.instruction.operands
    if len(operands) != count:
        b.fail(f"{count} operands are expected, not {len(operands)}")
    return operands


def _move(m: Modifiers, shapes: tuple[str, ...]) -> tuple[str, int, int]:
    """(shape, matrices, modifier bits) of ldmatrix and stmatrix, without the format."""
    m.need("sync", "aligned")
    shape = m.choose({name: name for name in shapes})
    count = m.choose({"x1": 1, "x2": 2, "x4": 4})
    mods = MODS["mat_trans"] if m.take("trans") else 0
    mods |= _space(m) | _SHAPES[shape] << MODS["mat_shape_shift"] | count << MODS["mat_count_shift"]
    return shape, count, mods


def ldmatrix(b: Builder, m: Modifiers) -> None:
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
    d, source = _operands(b, 2)
    items = _registers(b, d, 2 * count if shape == "m16n16" else count)
    unit, width, offset = b.address(source, "shared")
    dst = [b.dst(x, "b32") for x in items]
    b.emit("ldmatrix", "b32", dst=dst, src=[unit], mods=mods, immediate=offset, width_src=width, aligned=True)


def stmatrix(b: Builder, m: Modifiers) -> None:
    shape, count, mods = _move(m, ("m8n8", "m16n8"))
    m.need("b16" if shape == "m8n8" else "b8")
    m.done()
    if shape == "m16n8" and not mods & MODS["mat_trans"]:
        b.fail(".trans is mandatory for .m16n8")
    target, s = _operands(b, 2)
    items = _registers(b, s, count)
    unit, width, offset = b.address(target, "shared")
    src = [unit, *(b.src(x, "b32") for x in items)]
    b.emit("stmatrix", "b32", src=src, mods=mods, immediate=offset, width_dst=width, aligned=True)


def movmatrix(b: Builder, m: Modifiers) -> None:
    m.need("sync", "aligned", "m8n8", "trans", "b16")
    m.done()
    d, s = _operands(b, 2)
    if not isinstance(d, Register):
        b.fail("a destination register is expected")
    b.emit("movmatrix", "b32", dst=[b.dst(d, "b32")], src=[b.src(s, "b32")], aligned=True)


def copy(b: Builder, m: Modifiers) -> None:
    """cp.async: the bulk forms belong to `bulk`."""
    if m.has("bulk") or not m.take("async"):
        bulk.copy(b, m)
        return
    action = m.choose({name: name for name in ("commit_group", "wait_group", "wait_all", "mbarrier")}, "copy")
    _COPY_ACTIONS[action](b, m)


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
    offsets = of_offset << 32 | _offset_bits(to_offset)
    b.emit("cp_async", "b32", src=src, mods=mods, immediate=offsets)


def _limit(b: Builder, operand: Operand) -> tuple[int, int]:
    """The fourth operand: ignore-src is a predicate, src-size a number."""
    if isinstance(operand, Negated) or (isinstance(operand, Register) and operand.type == "pred"):
        unit, negated = b.pred(operand)
        return unit, MODS["copy_ignore"] | (MODS["copy_ignore_negated"] if negated else 0)
    return b.src(operand, "u32"), MODS["copy_size"]


def _commit(b: Builder, m: Modifiers) -> None:
    m.done()
    _operands(b, 0)
    b.emit("cp_async_commit")


def _wait_group(b: Builder, m: Modifiers) -> None:
    m.done()
    (n,) = _operands(b, 1)
    if not isinstance(n, Immediate) or n.bits < 0:
        b.fail("the number of groups is a constant")
    b.emit("cp_async_wait", immediate=n.bits)


def _wait_all(b: Builder, m: Modifiers) -> None:
    m.done()
    _operands(b, 0)
    b.emit("cp_async_wait", mods=MODS["copy_all"])


def _mbarrier(b: Builder, m: Modifiers) -> None:
    m.need("arrive")
    mods = MODS["copy_noinc"] if m.take("noinc") else 0
    m.take("shared", "shared::cta")
    m.need("b64")
    m.done()
    (address,) = _operands(b, 1)
    if not isinstance(address, Address):
        b.fail("an address is expected")
    unit, width, offset = b.address(address, "shared")
    b.emit("cp_async_mbar", "b64", src=[unit], mods=mods, immediate=offset, width_src=width)


_COPY_ACTIONS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "copy": _copy,
    "commit_group": _commit,
    "wait_group": _wait_group,
    "wait_all": _wait_all,
    "mbarrier": _mbarrier,
}

FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "ldmatrix": ldmatrix,
    "stmatrix": stmatrix,
    "movmatrix": movmatrix,
    "cp": copy,
}
