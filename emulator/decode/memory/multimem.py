"""multimem (PTX ISA 9.7.9.14, 9.7.9.26, 9.7.9.27): accesses through a multicast object.

A multimem address stands for one place on each device of the object's team (8.2.3). This machine is one device, and so
the team has one member: a reduction over its places is the value of the one, and a store or a reduction reaches the
one. Every place of global memory has a multimem address, `MULTIMEM` above its own. Nothing but multimem goes through
it, and multimem goes through nothing else: either is `global-out-of-bounds`.

The address is not told apart from the place's own where accesses are ordered: fence.proxy.alias, which PTX asks for
between the two, may be missing unseen.
"""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import SPACES, Builder, width_of
from fmha.emulator.decode.copies.bulk import reduced_type
from fmha.emulator.decode.memory.atomics import ATOM_CODES
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.decode.ordering import SCOPES, take_ordering
from fmha.emulator.ptx import Operand, Register, Vector

MULTIMEM = 1 << 44  # above the addresses of all allocations

_INTEGERS = {
    "add": ("u32", "u64", "s32"),
    **dict.fromkeys(("and", "or", "xor"), ("b32", "b64")),
    **dict.fromkeys(("min", "max"), ("u32", "s32", "u64", "s64")),
}
_HALVES = ("f16", "f16x2", "bf16", "bf16x2")
_BYTES = tuple(f"{name}{count}" for name in ("e5m2", "e4m3") for count in ("", "x2", "x4"))
_BITS = {**dict.fromkeys(("f16", "bf16"), 16), "f32": 32, "f64": 64, "f16x2": 32, "bf16x2": 32} | {
    name: 8 * int(name[5:] or 1) for name in _BYTES
}
_FLOATS = {"add": (*_HALVES, "f32", "f64", *_BYTES), "min": (*_HALVES, *_BYTES), "max": (*_HALVES, *_BYTES)}


def _place(b: Builder, operand: Operand) -> int:
    """A unit with the address of the one place."""
    unit, width, offset = b.address(operand, "global")
    if width != 64:
        b.fail("a 64-bit address is expected")
    place = b.new_unit(64)
    b.emit("sub", "u64", dst=[place], src=[unit, b.number(MULTIMEM - offset, 64)])
    return place


def _take(m: Modifiers, names: tuple[str, ...]) -> str:
    return m.choose({name: name for name in names}, "")


def _element(b: Builder, m: Modifiers, allowed: tuple[str, ...]) -> tuple[str, int]:
    """Type and number of elements, which are 32, 64 or 128 bits together where they are floats."""
    count = m.vector()
    name = _take(m, allowed)
    if not name:
        b.fail(f"multimem has no such operation; its types here are .{', .'.join(allowed)}")
    bits = _BITS.get(name, 0)
    if (bits and bits * count not in (32, 64, 128)) or (count > 1 and (not bits or name == "f64")):
        b.fail(f"multimem has no {count} elements of .{name}")
    return name, count


def _items(b: Builder, operand: Operand, count: int) -> tuple[Operand, ...]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        b.fail(f"{count} registers are expected, not {len(items)}")
    return items


def _move(b: Builder, m: Modifiers, loads: bool) -> None:
    """multimem.ld_reduce and multimem.st."""
    strong, order = take_ordering(
        b, m, {"relaxed": 0, "acquire" if loads else "release": MODS["acquire" if loads else "release"]}
    )
    m.take("global")
    operation = _take(m, tuple(_INTEGERS)) if loads else ""
    if loads and not operation:
        b.fail("multimem.ld_reduce needs its operation")
    precision = loads and _take(m, ("acc::f32", "acc::f16"))
    integers = _INTEGERS[operation] if loads else ("b32", "b64", "u32", "u64", "s32", "s64")
    name, count = _element(b, m, (*integers, *(_FLOATS.get(operation, ()) if loads else _BITS)))
    m.done()
    if precision and name not in (_HALVES if precision == "acc::f32" else _BYTES):
        b.fail(f".{precision} does not go with .{name}")
    value, address = b.operands(2)[:: 1 if loads else -1]
    items = _items(b, value, count)
    moved = f"b{_BITS.get(name) or width_of(name)}"
    width = next((width_of(x.type) for x in items if isinstance(x, Register)), width_of(moved))
    place = _place(b, address)
    mods = SPACES["global"] << MODS["space_shift"] | order
    if loads:
        dst = [b.dst(x, moved, any_width=True) for x in items]
        b.emit("ld_sync" if strong else "ld", moved, dst=dst, src=[place], mods=mods, width_dst=width, width_src=64)
        return
    src = [place, *(b.src(x, f"b{width}" if isinstance(x, Register) else moved, any_width=True) for x in items)]
    b.emit("st_sync" if strong else "st", moved, src=src, mods=mods, width_dst=64, width_src=width)


def _reduce(b: Builder, m: Modifiers) -> None:
    """multimem.red"""
    mods = m.choose({"relaxed": 0, "release": MODS["release"]}, 0) | m.choose(SCOPES, 0)
    m.take("global")
    operation = _take(m, tuple(_INTEGERS))
    if not operation:
        b.fail("multimem.red needs its operation")
    floats = {"add": (*_HALVES, "f32", "f64"), "min": _HALVES, "max": _HALVES}.get(operation, ())
    name, count = _element(b, m, (*_INTEGERS[operation], *floats))
    m.done()
    if operation != "add" and name in _HALVES and count == 1:
        b.fail(f"multimem.red.{operation} of .{name} takes a vector")
    address, value = b.operands(2)
    values = [b.src(x, name) for x in _items(b, value, count)]
    mods |= SPACES["global"] << MODS["space_shift"] | ATOM_CODES[operation] << MODS["atom_shift"]
    b.emit("atom", name, src=[_place(b, address), *values], mods=mods, width_src=64)


def _copy(b: Builder, m: Modifiers) -> None:
    """multimem.cp.async.bulk and multimem.cp.reduce.async.bulk."""
    reduces = m.take("reduce")
    m.need("async", "bulk")
    m.need("global", "shared::cta", "bulk_group")
    masked = not reduces and m.take("cp_mask")
    reduction, name = reduced_type(b, m) if reduces else (0, "none")
    m.done()
    target, source, size, *mask = b.operands(3 + masked)
    src = [_place(b, target), b.address_value(source, "shared", 32), b.src(size, "u32")]
    src += [b.src(x, "b16") for x in mask]
    b.emit("bulk_store", name, src=src, mods=reduction << MODS["reduce_shift"])


def multimem(b: Builder, m: Modifiers) -> None:
    """multimem.*: accesses to all devices of a multicast object."""
    action = m.choose({name: name for name in ("ld_reduce", "st", "red", "cp")})
    if action == "red":
        _reduce(b, m)
    elif action == "cp":
        _copy(b, m)
    else:
        _move(b, m, action == "ld_reduce")


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {"multimem": multimem}
