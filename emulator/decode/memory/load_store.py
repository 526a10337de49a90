"""mov, ld, ldu and st (PTX ISA 9.7.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fmha.emulator._core import MODS, TYPES
from fmha.emulator.decode.builder import SPACES, Builder, width_of
from fmha.emulator.decode.copies import async_store
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.decode.ordering import take_hints, take_ordering, take_space
from fmha.emulator.decode.policies import drop_policy
from fmha.emulator.ptx import Immediate, Operand, Register, Sink, Special, Vector
from fmha.emulator.ptx.scope import SPECIALS

_MEMORY_TYPES = tuple(name for name in TYPES if name[1:].isdigit())
_CLOCKS = ("%clock", "%clock_hi", "%globaltimer_lo", "%globaltimer_hi")  # of 32 bits


def mov(b: Builder, m: Modifiers) -> None:
    """mov, also of vectors and of special registers."""
    vector = m.vector()
    type_name = m.type()
    m.done()
    d, s = b.operands(2)
    if vector > 1:
        _mov_vector(b, type_name, _items(b, d, vector), _elements(b, s, vector, type_name))
    elif isinstance(s, Special) and s.name in ("%clock64", "%globaltimer"):
        b.emit("clock", "u64", dst=[b.dst(d, "u64")])
    elif isinstance(s, Special) and s.name in _CLOCKS:
        _mov_special(b, b.dst(d, "u32"), s)
    elif isinstance(s, Special):
        b.emit("mov", type_name, dst=[b.dst(d, type_name)], src=[_special(b, s, type_name)])
    elif isinstance(d, Vector):
        part = width_of(type_name) // len(d.items)
        dst = [-1 if isinstance(x, Sink) else b.dst(x, f"b{part}") for x in d.items]
        b.emit("unpack", f"b{part}", dst=dst, src=[b.src(s, type_name)], width_dst=part, width_src=width_of(type_name))
    elif isinstance(s, Vector):
        part = width_of(type_name) // len(s.items)
        src = [b.src(x, f"b{part}") for x in s.items]
        b.emit("pack", type_name, dst=[b.dst(d, type_name)], src=src, width_dst=width_of(type_name), width_src=part)
    else:
        b.emit("mov", type_name, dst=[b.dst(d, type_name)], src=[b.src(s, type_name)])


def _elements(b: Builder, source: Operand, vector: int, type_name: str) -> list[int]:
    """What mov.v2 and .v4 read: registers, or the axes of a special register that is a vector, such as %ntid. Of
    another special register ptxas makes four elements, which are its bytes."""
    if not isinstance(source, Special):
        return [b.src(x, type_name) for x in _items(b, source, vector)]
    axes = [Special(f"{source.name}.{axis}") for axis in "xyzw"]
    if vector == len(axes) and axes[0].name in SPECIALS:
        return [_special(b, axis, type_name) for axis in axes]
    if vector != len(axes) or width_of(type_name) != 32:
        b.fail(f"{source.name} is no vector of {vector} elements of .{type_name}")
    whole = b.new_unit(32)
    _mov_special(b, whole, source)
    parts = [b.new_unit(32) for _ in axes]
    for n, part in enumerate(parts):
        b.emit("bfe", "u32", dst=[part], src=[whole, b.number(8 * n, 32), b.number(8, 32)])
    return parts


def _special(b: Builder, source: Special, type_name: str) -> int:
    """Those that had 16 bits once may be read as 16 bits."""
    if width_of(type_name) != 16 or source.name.split(".")[0] not in ("%tid", "%ntid", "%ctaid", "%nctaid"):
        return b.src(source, type_name)
    half = b.new_unit(16)
    b.emit("cvt", "u16", type2="u32", dst=[half], src=[b.src(source, "u32")], width_dst=16, width_src=32)
    return half


def _mov_special(b: Builder, to: int, source: Special) -> None:
    """A special register of 32 bits, a clock among them."""
    name = source.name
    if name in ("%clock", "%globaltimer_lo"):
        b.emit("clock", "u32", dst=[to])
    elif name in ("%clock_hi", "%globaltimer_hi"):
        whole = b.new_unit(64)
        b.emit("clock", "u64", dst=[whole])
        b.emit("unpack", "b32", dst=[-1, to], src=[whole], width_dst=32, width_src=64)
    else:
        b.emit("mov", "u32", dst=[to], src=[b.src(source, "u32")])


def _mov_vector(b: Builder, type_name: str, to: tuple[Operand, ...], source: list[int]) -> None:
    pairs = [(b.dst(x, type_name), src) for x, src in zip(to, source, strict=True)]
    read = [(dst, b.new_unit(width_of(type_name)), src) for dst, src in pairs if dst >= 0]
    for _, unit, src in read:  # all of them before the first is written
        b.emit("mov", type_name, dst=[unit], src=[src])
    for dst, unit, _ in read:
        b.emit("mov", type_name, dst=[dst], src=[unit])


def _access_modifiers(b: Builder, m: Modifiers, semantics: dict[str, int]) -> tuple[str, int, str, int, bool]:
    """Space, vector length, element type, ordering bits (-1 for a weak access), and whether a cache policy follows."""
    space = take_space(m)
    strong, mods = take_ordering(b, m, semantics)
    hinted = take_hints(m)
    vector = m.vector()
    type_name = m.type(_MEMORY_TYPES)
    m.done()
    # Strong accesses matter where others look: not in local or parameter memory.
    return space, vector, type_name, mods if strong and space not in ("local", "param", "const") else -1, hinted


def _items(b: Builder, operand: Operand, vector: int) -> tuple[Operand, ...]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != vector:
        b.fail(f"{vector} registers are expected, not {len(items)}")
    return items


def _register_width(items: tuple[Operand, ...], type_name: str) -> int:
    for item in items:
        if isinstance(item, Register):
            return width_of(item.type)
    return width_of(type_name)


def _used_parts(b: Builder, count: int, size: int) -> Iterator[tuple[int, int]]:
    """(first element, elements) of the accesses that make up a load of `count` elements of `size` bytes: one, or those
    of the elements of which a byte is used. nvcc and the CuTe DSL widen loads and say by a pragma what they use of
    them; the rest may be anybody's."""
    used_bytes = b.instruction.used_bytes
    if not used_bytes:
        yield 0, count
        return
    used = [used_bytes >> k * size & (1 << size) - 1 != 0 for k in range(count)]
    at = 0
    while at < count:
        width = count
        while at % width or not all(used[at : at + width]):
            if width == 1:
                break
            width //= 2
        if used[at]:
            yield at, width
        at += width


def load(b: Builder, m: Modifiers) -> None:
    """ld from any space, of vectors as well."""
    space, vector, type_name, order, hinted = _access_modifiers(b, m, {"relaxed": 0, "acquire": MODS["acquire"]})
    operands = drop_policy(b, b.instruction.operands, hinted)
    if len(operands) != 2:
        b.fail(f"2 operands are expected, not {len(operands)}")
    items = _items(b, operands[0], vector)
    unit, width, offset = b.address(operands[1], space)
    dst = [b.dst(x, type_name, any_width=True) for x in items]
    size = int(type_name[1:]) // 8
    read_only = "nc" in b.instruction.modifiers or b.instruction.opcode == "ldu"
    non_coherent = MODS["non_coherent"] if read_only and order < 0 else 0
    for first, count in _used_parts(b, vector, size) if order < 0 else [(0, vector)]:
        b.emit(
            "ld" if order < 0 else "ld_sync",
            type_name,
            dst=dst[first : first + count],
            src=[unit],
            mods=SPACES[space] << MODS["space_shift"] | max(order, 0) | non_coherent,
            immediate=offset + first * size,
            width_dst=_register_width(items, type_name),
            width_src=width,
        )


def load_uniform(b: Builder, m: Modifiers) -> None:
    """ldu: what is read-only, from one address of all threads. On current GPUs a load like others."""
    if set(b.instruction.modifiers) - {"global", "v2", "v4"} - set(TYPES):
        b.fail("ldu has a state space, .global, a vector and a type")
    load(b, m)


def store(b: Builder, m: Modifiers) -> None:
    """st to any space, st.async and st.bulk."""
    if m.has("async") and not async_store.goes_to_global(m):
        async_store.store(b, m)
        return
    if m.take("bulk"):
        _fill(b, m)
        return
    space, vector, type_name, order, hinted = _access_modifiers(b, m, {"relaxed": 0, "release": MODS["release"]})
    operands = drop_policy(b, b.instruction.operands, hinted)
    if len(operands) != 2:
        b.fail(f"2 operands are expected, not {len(operands)}")
    items = _items(b, operands[1], vector)
    value_width = _register_width(items, type_name)
    unit, width, offset = b.address(operands[0], space)
    src = [
        unit,
        *(b.src(x, f"b{value_width}" if isinstance(x, Register) else type_name, any_width=True) for x in items),
    ]
    b.emit(
        "st" if order < 0 else "st_sync",
        type_name,
        src=src,
        mods=SPACES[space] << MODS["space_shift"] | max(order, 0),
        immediate=offset,
        width_dst=width,
        width_src=value_width,
    )


def _fill(b: Builder, m: Modifiers) -> None:
    """st.bulk [a], size, 0: the only value that it stores."""
    m.take("weak")
    m.take("shared::cta")
    m.done()
    if len(b.instruction.operands) != 3:
        b.fail(f"3 operands are expected, not {len(b.instruction.operands)}")
    address, size, value = b.instruction.operands
    if not isinstance(value, Immediate) or value.bits != 0:
        b.fail("st.bulk stores zeros: the constant 0 is expected")
    b.emit("store_bulk", "b64", src=[b.address_value(address, "shared", 32), b.src(size, "u64")])


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "mov": mov,
    "ld": load,
    "ldu": load_uniform,
    "st": store,
}
