"""tcgen05 (PTX ISA 9.7.16)."""

from __future__ import annotations

from collections.abc import Callable

from emulator._core import MODS
from emulator.decode.builder import Builder
from emulator.decode.modifiers import Modifiers
from emulator.ptx import Address, Negated, Vector

_SHAPES = {"32x32b": (0, 1), "16x64b": (1, 1), "16x128b": (2, 2), "16x256b": (3, 4)}


def tcgen05(b: Builder, m: Modifiers) -> None:
    action = m.choose({name: name for name in _TCGEN05})
    _TCGEN05[action](b, m)


def _group_one(b: Builder, m: Modifiers) -> None:
    if m.choose({"cta_group::1": 1, "cta_group::2": 2}) == 2:
        b.fail("cta_group::2 is not modelled")


def _alloc(b: Builder, m: Modifiers) -> None:
    _group_one(b, m)
    m.need("sync", "aligned", "b32")
    m.take("shared::cta")
    m.done()
    address, columns = b.instruction.operands
    unit, width, offset = b.address(address, "shared")
    b.emit("tmem_alloc", "b32", src=[unit, b.src(columns, "u32")], immediate=offset, width_src=width, aligned=True)


def _dealloc(b: Builder, m: Modifiers) -> None:
    _group_one(b, m)
    m.need("sync", "aligned", "b32")
    m.done()
    address, columns = b.instruction.operands
    b.emit("tmem_dealloc", "b32", src=[b.src(address, "b32"), b.src(columns, "u32")], aligned=True)


def _relinquish(b: Builder, m: Modifiers) -> None:
    _group_one(b, m)
    m.need("sync", "aligned")
    m.done()
    b.emit("tmem_relinquish", aligned=True)


def _shape(b: Builder, m: Modifiers) -> tuple[int, int]:
    """(shape code, registers) of a tcgen05.ld or tcgen05.st."""
    m.need("sync", "aligned")
    code, registers = m.choose(_SHAPES)
    count = m.choose({f"x{1 << n}": 1 << n for n in range(8)})
    m.need("b32")
    m.done()
    if count * registers > 128:
        b.fail("more than 128 registers")
    return code, count * registers


def _tmem_address(b: Builder, operand: object) -> tuple[int, int]:
    if not isinstance(operand, Address):
        b.fail(f"a tensor-memory address is expected, not {operand}")
    unit, width, offset = b.address(operand, "shared")
    if width != 32:
        b.fail("a tensor-memory address has 32 bits")
    return unit, offset


def _registers(b: Builder, operand: object, count: int) -> Vector:
    vector = operand if isinstance(operand, Vector) else Vector((operand,))  # type: ignore[arg-type]
    if len(vector.items) != count:
        b.fail(f"{count} registers are expected, not {len(vector.items)}")
    return vector


def _load(b: Builder, m: Modifiers) -> None:
    code, count = _shape(b, m)
    d, address = b.instruction.operands
    unit, offset = _tmem_address(b, address)
    dst = [b.dst(x, "b32") for x in _registers(b, d, count).items]
    b.emit("tmem_ld", "b32", dst=dst, src=[unit], mods=code << MODS["tc_shape_shift"], immediate=offset, aligned=True)


def _store(b: Builder, m: Modifiers) -> None:
    code, count = _shape(b, m)
    address, s = b.instruction.operands
    unit, offset = _tmem_address(b, address)
    src = [unit, *(b.src(x, "b32") for x in _registers(b, s, count).items)]
    b.emit("tmem_st", "b32", src=src, mods=code << MODS["tc_shape_shift"], immediate=offset, aligned=True)


def _wait_ld(b: Builder, m: Modifiers) -> None:
    m.need("sync", "aligned")
    m.done()
    b.emit("tmem_wait_ld", aligned=True)


def _wait_st(b: Builder, m: Modifiers) -> None:
    m.need("sync", "aligned")
    m.done()
    b.emit("tmem_wait_st", aligned=True)


def _mma(b: Builder, m: Modifiers) -> None:
    _group_one(b, m)
    m.need("kind::f16")
    m.done()
    operands = b.instruction.operands
    if len(operands) != 5:
        b.fail("5 operands are expected: disable-output-lane and scale-input-d are not modelled")
    d, a, desc_b, idesc, enable = operands
    from_tmem = isinstance(a, Address)
    src = [
        b.address_value(d, "shared", 32),
        b.address_value(a, "shared", 32) if from_tmem else b.src(a, "b64"),
        b.src(desc_b, "b64"),
        b.src(idesc, "b32"),
        _positive(b, enable),
    ]
    b.emit("tc_mma", src=src, mods=MODS["tc_a_tmem"] if from_tmem else 0)


def _positive(b: Builder, operand: object) -> int:
    """A predicate unit with no negation left: `!p` becomes a unit of its own."""
    if isinstance(operand, Negated):
        unit = b.new_unit(1)
        b.emit("not", "pred", dst=[unit], src=[b.src(operand.register, "pred")])
        return unit
    return b.src(operand, "pred")  # type: ignore[arg-type]


def _commit(b: Builder, m: Modifiers) -> None:
    _group_one(b, m)
    m.need("mbarrier::arrive::one")
    space = m.choose({"shared::cluster": "shared::cluster"}, "generic")
    m.need("b64")
    m.done()
    if len(b.instruction.operands) != 1:
        b.fail("1 operand is expected")
    unit, width, offset = b.address(b.instruction.operands[0], space)
    if offset:
        unit = b.address_value(b.instruction.operands[0], space, width)
    b.emit("tc_commit", "b64", src=[unit], width_src=width)


def _fence_before(b: Builder, m: Modifiers) -> None:
    m.done()
    b.emit("tc_fence_before")


def _fence_after(b: Builder, m: Modifiers) -> None:
    m.done()
    b.emit("tc_fence_after")


_TCGEN05: dict[str, Callable[[Builder, Modifiers], None]] = {
    "alloc": _alloc,
    "dealloc": _dealloc,
    "relinquish_alloc_permit": _relinquish,
    "ld": _load,
    "st": _store,
    "wait::ld": _wait_ld,
    "wait::st": _wait_st,
    "mma": _mma,
    "commit": _commit,
    "fence::before_thread_sync": _fence_before,
    "fence::after_thread_sync": _fence_after,
}

FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {"tcgen05": tcgen05}
