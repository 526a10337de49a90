"""Debugging, and the calls that the driver answers: printf, assertions, the heap."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers


def nothing(b: Builder, m: Modifiers) -> None:
    """nanosleep, pmevent, brkpt: without a timer or a debugger they do nothing."""
    m.take("mask")
    m.take("u32")
    m.done()
    for operand in b.instruction.operands:
        b.src(operand, "u32")
    b.emit("nop")


def print_text(b: Builder, m: Modifiers) -> None:
    """What a call of vprintf becomes (inlined_calls.py)."""
    m.done()
    d, text, arguments = b.operands(3)
    b.emit("print", "u32", dst=[b.dst(d, "u32")], src=[b.src(text, "u64"), b.src(arguments, "u64")])


def fail_assertion(b: Builder, m: Modifiers) -> None:
    """What a call of __assertfail becomes (inlined_calls.py)."""
    m.done()
    message, file, line, function = b.operands(4)
    b.emit(
        "assert_fail",
        "u64",
        src=[b.src(x, t) for x, t in ((message, "u64"), (file, "u64"), (line, "u32"), (function, "u64"))],
    )


def allocate_memory(b: Builder, m: Modifiers) -> None:
    """What a call of malloc becomes (inlined_calls.py)."""
    m.done()
    d, size = b.operands(2)
    b.emit("heap_malloc", "u64", dst=[b.dst(d, "u64")], src=[b.src(size, "u64")])


def free_memory(b: Builder, m: Modifiers) -> None:
    """What a call of free becomes (inlined_calls.py)."""
    m.done()
    (address,) = b.operands(1)
    b.emit("heap_free", "u64", src=[b.src(address, "u64")])


def no_callee(b: Builder, m: Modifiers) -> None:
    """Where the address of an indirect call was that of no known function (inlined_calls.py)."""
    m.done()
    b.emit("trap", immediate=1)


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "nanosleep": nothing,
    "pmevent": nothing,
    "brkpt": nothing,
    "%vprintf": print_text,
    "%assertfail": fail_assertion,
    "%malloc": allocate_memory,
    "%free": free_memory,
    "%nocallee": no_callee,
}
