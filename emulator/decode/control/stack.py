"""Local memory by the way: alloca, stacksave, stackrestore (PTX ISA 9.7.17). A hidden register is the stack pointer."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Function, Immediate, Instruction

STACK_BYTES = 8192  # a thread's, behind its variables; an access beyond it is out of bounds
_ALIGN = 8
_WIDTHS = {"b32": 32, "u32": 32, "s32": 32, "b64": 64, "u64": 64, "s64": 64}


def uses_stack(function: Function) -> bool:
    """Whether it needs a stack of its own."""
    return any(i.opcode in FORMS for i in function.body)


def begin_stack(b: Builder, first: Instruction, local_bytes: int) -> None:
    """Sets the stack pointer, before the first instruction."""
    b.begin(Instruction("mov", (), (), None, first.line, first.text, first.location), 0)
    b.stack = b.new_unit(64)
    b.emit("mov", "b64", dst=[b.stack], src=[b.number(local_bytes, 64)])


def _move(b: Builder, dst: int, src: int, width_dst: int, width_src: int) -> None:
    if width_dst == width_src:
        b.emit("mov", f"b{width_dst}", dst=[dst], src=[src])
    else:
        to, of = f"u{width_dst}", f"u{width_src}"
        b.emit("cvt", to, type2=of, dst=[dst], src=[src], width_dst=width_dst, width_src=width_src)


def _width(m: Modifiers) -> int:
    width = m.choose(_WIDTHS, 64)
    m.done()
    return width


def allocate(b: Builder, m: Modifiers) -> None:
    """alloca: bytes on the stack, aligned."""
    width = _width(m)
    operands = b.instruction.operands
    if len(operands) not in (2, 3):
        b.fail(f"2 or 3 operands are expected, not {len(operands)}")
    align = _ALIGN
    if len(operands) == 3:
        if not isinstance(operands[2], Immediate) or operands[2].bits not in (1 << n for n in range(24)):
            b.fail("the alignment is a constant, a power of two")
        align = operands[2].bits
    size = b.src(operands[1], f"b{width}")
    if width == 32:
        wide = b.new_unit(64)
        _move(b, wide, size, 64, 32)
        size = wide
    raised, start = b.new_unit(64), b.new_unit(64)
    b.emit("add", "u64", dst=[raised], src=[b.stack, b.number(align - 1, 64)])
    b.emit("and", "b64", dst=[start], src=[raised, b.number(-align, 64)])
    b.emit("add", "u64", dst=[b.stack], src=[start, size])
    _move(b, b.dst(operands[0], f"b{width}"), start, width, 64)


def save(b: Builder, m: Modifiers) -> None:
    """stacksave: where the stack ends."""
    width = _width(m)
    (register,) = b.operands(1)
    _move(b, b.dst(register, f"b{width}"), b.stack, width, 64)


def restore(b: Builder, m: Modifiers) -> None:
    """stackrestore: the stack ends there again."""
    width = _width(m)
    (register,) = b.operands(1)
    _move(b, b.stack, b.src(register, f"b{width}"), 64, width)


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "alloca": allocate,
    "stacksave": save,
    "stackrestore": restore,
}
