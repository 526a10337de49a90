"""Indexed branches, warp reductions, cache control, debugging, and the calls that the driver answers."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import SPACES, Builder
from fmha.emulator.decode.memory.atomics import ATOM_CODES
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import LabelRef, PredicatePair


def branch_indexed(b: Builder, m: Modifiers) -> None:
    m.need("idx")
    m.take("uni")
    m.done()
    index, table = b.operands(2)
    if not isinstance(table, LabelRef) or table.name not in b.function.branch_targets:
        b.fail("the label of a .branchtargets list is expected")
    targets = tuple(b.function.labels[name] for name in b.function.branch_targets[table.name])
    b.emit("brx", "u32", src=[b.src(index, "u32")], targets=targets, immediate=len(targets))


def reduce(b: Builder, m: Modifiers) -> None:
    """redux.sync"""
    m.need("sync")
    operation = m.choose({name: name for name in ("add", "and", "or", "xor", "min", "max")})
    mods = ATOM_CODES[operation] << MODS["atom_shift"]
    absolute, nan = m.take("abs"), m.take("NaN")
    logic = operation in ("and", "or", "xor")
    type_name = m.type(("b32",) if logic else ("u32", "s32") if operation == "add" else ("u32", "s32", "f32"))
    m.done()
    if (absolute or nan) and type_name != "f32":
        b.fail(".abs and .NaN need .f32")
    mods |= MODS["abs"] * absolute | MODS["nan"] * nan
    d, a, members = b.operands(3)
    b.emit("redux", type_name, dst=[b.dst(d, type_name)], src=[b.src(a, type_name), b.src(members, "b32")], mods=mods)


def match(b: Builder, m: Modifiers) -> None:
    mode = m.choose({"any": "any", "all": "all"})
    m.need("sync")
    type_name = m.type(("b32", "b64"))
    m.done()
    d, a, members = b.operands(3)
    src = [b.src(a, type_name), b.src(members, "b32")]
    if mode == "any":
        dst = [b.dst(d, "b32")]
    elif isinstance(d, PredicatePair):
        dst = [b.dst(d.first, "b32"), b.dst(d.second, "pred")]
    else:
        dst = [b.dst(d, "b32"), -1]
    b.emit(f"match_{mode}", type_name, dst=dst, src=src)


def is_space(b: Builder, m: Modifiers) -> None:
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


def nothing(b: Builder, m: Modifiers) -> None:
    """nanosleep, pmevent, brkpt: without a timer or a debugger they do nothing."""
    m.take("mask")
    m.take("u32")
    m.done()
    for operand in b.instruction.operands:
        b.src(operand, "u32")
    b.emit("nop")


def print_text(b: Builder, m: Modifiers) -> None:
    """What a call of vprintf becomes (calls.py)."""
    m.done()
    d, text, arguments = b.operands(3)
    b.emit("print", "u32", dst=[b.dst(d, "u32")], src=[b.src(text, "u64"), b.src(arguments, "u64")])


def fail_assertion(b: Builder, m: Modifiers) -> None:
    """What a call of __assertfail becomes (calls.py)."""
    m.done()
    message, file, line, function = b.operands(4)
    b.emit(
        "assert_fail",
        "u64",
        src=[b.src(x, t) for x, t in ((message, "u64"), (file, "u64"), (line, "u32"), (function, "u64"))],
    )


def allocate_memory(b: Builder, m: Modifiers) -> None:
    """What a call of malloc becomes (calls.py)."""
    m.done()
    d, size = b.operands(2)
    b.emit("heap_malloc", "u64", dst=[b.dst(d, "u64")], src=[b.src(size, "u64")])


def free_memory(b: Builder, m: Modifiers) -> None:
    """What a call of free becomes (calls.py)."""
    m.done()
    (address,) = b.operands(1)
    b.emit("heap_free", "u64", src=[b.src(address, "u64")])


def no_callee(b: Builder, m: Modifiers) -> None:
    """Where the address of an indirect call was that of no known function (calls.py)."""
    m.done()
    b.emit("trap", immediate=1)


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "brx": branch_indexed,
    "redux": reduce,
    "match": match,
    "isspacep": is_space,
    "prefetch": prefetch,
    "prefetchu": cache_line,
    "applypriority": cache_line,
    "discard": cache_line,
    "nanosleep": nothing,
    "pmevent": nothing,
    "brkpt": nothing,
    "%vprintf": print_text,
    "%assertfail": fail_assertion,
    "%malloc": allocate_memory,
    "%free": free_memory,
    "%nocallee": no_callee,
}
