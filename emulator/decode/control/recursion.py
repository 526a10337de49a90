"""What calls of recursive functions become (inlined_calls.py, frames.py): records of the machine's own."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Immediate, Operand, Register, Vector


def _kept(b: Builder, operands: tuple[Operand, ...]) -> tuple[tuple[int, int], ...]:
    registers = [x for o in operands if isinstance(o, Vector) for x in o.items]
    units = [b.register(x) for x in registers if isinstance(x, Register)]
    return tuple((unit, b.width(unit)) for unit in units)


def push(b: Builder, m: Modifiers) -> None:
    """Pointer, bytes of the caller's frame and of the callee's, the end of the stack, registers to keep."""
    m.done()
    pointer, step, size, limit, *rest = b.instruction.operands
    kept = _kept(b, tuple(rest))
    unit = b.dst(pointer, "b64")
    src = [unit, b.src(step, "u64"), b.src(size, "u64"), b.src(limit, "b64")]
    b.emit("frame_push", "b64", dst=[unit], src=src, kept=kept, immediate=len(kept))


def pop(b: Builder, m: Modifiers) -> None:
    """Pointer, bytes of the caller's frame, registers to bring back."""
    m.done()
    pointer, step, *rest = b.instruction.operands
    kept = _kept(b, tuple(rest))
    unit = b.dst(pointer, "b64")
    b.emit("frame_pop", "b64", dst=[unit], src=[unit, b.src(step, "u64")], kept=kept, immediate=len(kept))


def copy(b: Builder, m: Modifiers) -> None:
    """To, from: addresses of .param variables; bytes."""
    m.done()
    to, source, size = b.operands(3)
    assert isinstance(size, Immediate)
    b.emit("local_copy", "b64", src=[b.src(to, "b64"), b.src(source, "b64")], immediate=size.bits)


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "%frame_push": push,
    "%frame_pop": pop,
    "%local_copy": copy,
}
