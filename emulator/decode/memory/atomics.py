"""atom and red (PTX ISA 9.7.13.5, 9.7.13.6)."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import SPACES, Builder, width_of
from fmha.emulator.decode.copies import async_store
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.decode.ordering import SCOPES, take_hints
from fmha.emulator.decode.policies import drop_policy
from fmha.emulator.ptx import Operand, Sink, Vector

_OPERATIONS = {n: k for k, n in enumerate(("add", "and", "or", "xor", "min", "max", "inc", "dec", "exch", "cas"))}
ATOM_CODES = _OPERATIONS
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_TYPES = {
    "add": ("u32", "s32", "u64", "f32", "f64", *_HALVES),
    "min": ("u32", "s32", "u64", "s64", *_HALVES),
    "max": ("u32", "s32", "u64", "s64", *_HALVES),
    "inc": ("u32",),
    "dec": ("u32",),
    "exch": ("b32", "b64", "b128"),
    "cas": ("b16", "b32", "b64", "b128"),
    **dict.fromkeys(("and", "or", "xor"), ("b32", "b64")),
}
_SEMANTICS = {
    "relaxed": 0,
    "acquire": MODS["acquire"],
    "release": MODS["release"],
    "acq_rel": MODS["acquire"] | MODS["release"],
}
_SPACES = {"global": "global", "shared": "shared", "shared::cta": "shared", "shared::cluster": "shared::cluster"}


def _access(b: Builder, m: Modifiers) -> tuple[str, str, str, int, bool]:
    """Operation, type, space, modifier bits, and whether a cache policy follows."""
    mods = m.choose(_SEMANTICS, 0) | m.choose(SCOPES, 0)
    space = m.choose(_SPACES, "generic")
    operation = m.choose({name: name for name in _OPERATIONS})
    hinted = take_hints(m)
    noftz = m.take("noftz")
    count = m.vector()
    type_name = m.type(_TYPES[operation])
    m.done()
    if (type_name in _HALVES and operation == "add") != noftz and count == 1:
        b.fail(".noftz belongs to the additions of .f16 and .bf16, and to them alone")
    if count > 1 and not _vector_allowed(operation, type_name, count, space):
        b.fail(f"there is no vector of {count} .{type_name} for {operation} here")
    mods |= SPACES[space] << MODS["space_shift"] | _OPERATIONS[operation] << MODS["atom_shift"]
    return operation, type_name, space, mods, hinted


def _vector_allowed(operation: str, type_name: str, count: int, space: str) -> bool:
    if space not in ("global", "generic") or operation not in ("add", "min", "max"):
        return False
    if type_name == "f32":
        return operation == "add" and count in (2, 4)
    return type_name in _HALVES and count * width_of(type_name) <= 128


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _emit(
    b: Builder, dst: list[Operand], operands: tuple[Operand, ...], access: tuple[str, str, str, int, bool]
) -> None:
    operation, type_name, space, mods, _ = access
    if len(operands) != (3 if operation == "cas" else 2):
        b.fail("wrong number of operands")
    address, value, *more = operands
    values = [*_items(value), *more]
    unit, width, offset = b.address(address, space)
    src = [unit, *(b.src(x, type_name) for x in values)]
    results = [b.dst(x, type_name) for x in dst]
    if results and len(results) != (1 if operation == "cas" else len(values)):
        b.fail("as many results as values are expected")
    b.emit("atom", type_name, dst=results, src=src, mods=mods, immediate=offset, width_src=width)


def atomic(b: Builder, m: Modifiers) -> None:
    """atom, with the old value as its result."""
    access = _access(b, m)
    if not b.instruction.operands:
        b.fail("wrong number of operands")
    d, *operands = drop_policy(b, b.instruction.operands, access[4])
    _emit(b, [] if isinstance(d, Sink) else list(_items(d)), tuple(operands), access)


def reduction(b: Builder, m: Modifiers) -> None:
    """red, which has no result."""
    if m.has("async") and not async_store.goes_to_global(m):
        async_store.reduction(b, m)
        return
    access = _access(b, m)
    if access[0] in ("exch", "cas"):
        b.fail(f"red has no .{access[0]}")
    _emit(b, [], drop_policy(b, b.instruction.operands, access[4]), access)


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {"atom": atomic, "red": reduction}
