"""What is done to an instruction: deleted, weakened, or one operand moved by one step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fmha.emulator.mutation.statements import PtxSource, Statement, moved, statement_of
from fmha.emulator.ptx import Function, Instruction

Change = tuple[str, str]  # (what was done, the text that replaces the statement)

_WAITS = re.compile(r"mbarrier\.(try|test)_wait\b")
_DELETED = re.compile(
    r"tcgen05\.(fence|wait|commit|relinquish_alloc_permit|dealloc)\b|fence\b|membar\b|(bar|barrier)(?!.*\.red)\b"
    r"|mbarrier\.(init|inval|arrive|arrive_drop|expect_tx|complete_tx)\b|cp\.async\.(wait|commit|mbarrier)"
    r"|cp\.async\.bulk\.(wait|commit)_group\b|wgmma\.(fence|commit_group|wait_group)\b|griddepcontrol\b"
)
_GROUPS = re.compile(r"(cp\.async|cp\.async\.bulk|wgmma)\.wait_group\b")
_STRONG = re.compile(r"\.(acquire|release|acq_rel)\b")
_SCOPES = {".sys": ".gpu", ".gpu": ".cluster", ".cluster": ".cta"}
_PROXY_SPACES = {".global": ".shared::cta", ".shared::cta": ".global", ".shared::cluster": ".global"}

# Steps of the operands of tcgen05.mma (PTX ISA, tcgen05 instruction and matrix descriptors).
_INSTRUCTION_STEPS = (
    ("N +16", "add.s32 {new}, {old}, 0x40000"),
    ("N -16", "sub.s32 {new}, {old}, 0x40000"),
    ("M -64", "sub.s32 {new}, {old}, 0x4000000"),
    ("D type", "xor.b32 {new}, {old}, 0x10"),
    ("A type", "xor.b32 {new}, {old}, 0x80"),
    ("B type", "xor.b32 {new}, {old}, 0x400"),
    ("A major", "xor.b32 {new}, {old}, 0x8000"),
    ("B major", "xor.b32 {new}, {old}, 0x10000"),
)
_MATRIX_STEPS = (
    ("start +16 bytes", "add.s64 {new}, {old}, 1"),
    ("leading offset +16 bytes", "add.s64 {new}, {old}, 0x10000"),
    ("stride offset +16 bytes", "add.s64 {new}, {old}, 0x100000000"),
    ("swizzle", "xor.b64 {new}, {old}, 0xC000000000000000"),
)


@dataclass(frozen=True, slots=True)
class PtxMutant:
    """One change of one instruction. `source`: the CUDA place, innermost inlined function first, "" when unknown."""

    index: int
    kind: str  # "delete", "weaken" or "operand"
    what: str
    line: int
    text: str
    source: str
    ptx: str  # the whole module, line for line as long as the original


def mutants_of(ptx: str, function: Function) -> Iterator[PtxMutant]:
    """Every mutant of `function`, in the order of its body."""
    source = PtxSource(ptx)
    index = 0
    previous: Instruction | None = None
    for instruction in function.body:
        changes = list(_changes(instruction))
        if previous is not None and _repeats(instruction, previous):
            changes.append(("delete", "wait not repeated", ""))
        previous = instruction
        span = source.span(instruction) if changes else None
        if changes and span is None:
            raise ValueError(f"line {instruction.line}: cannot find {instruction.text!r} in the source")
        for kind, what, replacement in changes:
            assert span is not None
            text = source.replaced(span, replacement)
            yield PtxMutant(index, kind, what, instruction.line, instruction.text, _place(instruction), text)
            index += 1


def probe_of(ptx: str, function: Function, mutant: PtxMutant) -> str:
    """The module with a trap, under the same guard, in the place of the mutant's instruction: is it executed at all?"""
    source = PtxSource(ptx)
    found = next(x for x in function.body if (x.line, x.text) == (mutant.line, mutant.text))
    span = source.span(found)
    assert span is not None
    return source.replaced(span, f"{statement_of(found.text).guard}trap;")


def _repeats(instruction: Instruction, previous: Instruction) -> bool:
    """A branch back to the wait just before it, on that wait's predicate."""
    if instruction.opcode != "bra" or instruction.guard is None or not _WAITS.match(previous.mnemonic):
        return False
    return instruction.guard.negated and previous.operands[0] == instruction.guard.register


def _place(instruction: Instruction) -> str:
    parts: list[str] = []
    location = instruction.location
    while location is not None:
        name = location.file.rsplit("/", 1)[-1]
        parts.append(f"{name}:{location.line}" + (f" {location.function}" if location.function else ""))
        location = location.inlined_at
    return " < ".join(parts)


def _changes(instruction: Instruction) -> Iterator[tuple[str, str, str]]:
    statement = statement_of(instruction.text)
    for kind, operator in (("delete", _deleted), ("weaken", _weakened), ("operand", _stepped)):
        for what, replacement in operator(statement):
            yield kind, what, replacement


def _deleted(s: Statement) -> Iterator[Change]:
    if _WAITS.match(s.mnemonic):
        # The wait's loop sees a phase that is always complete.
        yield "always complete", f"{s.guard}setp.eq.u32 {s.operands[0]}, 0, 0;"
    elif s.mnemonic.startswith("mbarrier.arrive") and s.operands[0][0] not in "[_":
        yield "deleted", f"{s.guard}mov.b64 {s.operands[0]}, 0;"
    elif _DELETED.match(s.mnemonic):
        yield "deleted", ""


def _weakened(s: Statement) -> Iterator[Change]:
    m = s.mnemonic
    if m.startswith("mbarrier.arrive") or _WAITS.match(m):
        # Release and acquire are the defaults.
        if _STRONG.search(m):
            weak = _STRONG.sub(".relaxed", m)
        else:
            weak = re.sub(r"^(mbarrier\.\w+(\.expect_tx|\.parity|\.noComplete)?)", r"\1.relaxed.cta", m)
        if ".relaxed" not in m:
            yield "relaxed", str(s.with_mnemonic(weak))
    elif m.startswith("fence.proxy.async"):
        space = next((x for x in _PROXY_SPACES if m.endswith(x)), "")
        yield "another space", str(s.with_mnemonic(m.removesuffix(space) + _PROXY_SPACES.get(space, ".global")))
    elif re.match(r"fence\.(sc|acq_rel|acquire|release)\b", m):
        for scope, narrower in _SCOPES.items():
            if m.endswith(scope):
                yield f"scope {narrower}", str(s.with_mnemonic(m.removesuffix(scope) + narrower))
    elif re.match(r"(ld|st|atom|red|barrier\.cluster\.arrive)\b", m) and _STRONG.search(m):
        yield "relaxed", str(s.with_mnemonic(_STRONG.sub(".relaxed", m)))
    if _GROUPS.match(m) and s.operands:
        yield "one group more", str(s.with_operand(0, str(int(s.operands[0], 0) + 1)))
        if m == "cp.async.bulk.wait_group":
            yield "reads only", str(s.with_mnemonic(m + ".read"))


def _stepped(s: Statement) -> Iterator[Change]:
    for prefix, operator in _OPERANDS.items():
        if s.mnemonic.startswith(prefix):
            yield from operator(s)
            return


def _integer_steps(s: Statement, index: int, name: str, step: int) -> Iterator[Change]:
    for sign in ("+", "-"):
        operation = "add" if sign == "+" else "sub"
        yield f"{name} {sign}{step}", s.stepped(index, f"{operation}.s32 {{new}}, {{old}}, {step}")


def _address_step(s: Statement, index: int, name: str, step: int) -> Change:
    return f"{name} +{step}", str(s.with_operand(index, moved(s.operands[index], step)))


def _mbarrier_init(s: Statement) -> Iterator[Change]:
    yield from _integer_steps(s, 1, "count", 1)
    yield _address_step(s, 0, "barrier", 8)


def _mbarrier_arrive(s: Statement) -> Iterator[Change]:
    at = next(k for k, operand in enumerate(s.operands) if operand.startswith("["))
    yield _address_step(s, at, "barrier", 8)
    if len(s.operands) > at + 1:
        transaction = ".expect_tx" in s.mnemonic or ".complete_tx" in s.mnemonic
        yield from _integer_steps(s, at + 1, "bytes" if transaction else "count", 16 if transaction else 1)


def _mbarrier_wait(s: Statement) -> Iterator[Change]:
    yield _address_step(s, 1, "barrier", 8)
    if ".parity" in s.mnemonic:
        yield "parity flipped", s.stepped(2, "xor.b32 {new}, {old}, 1")


def _barrier(s: Statement) -> Iterator[Change]:
    if ".cluster" in s.mnemonic or ".warp" in s.mnemonic or not s.operands:
        return
    yield "barrier +1", s.stepped(0, "add.s32 {new}, {old}, 1")
    if len(s.operands) > 1:
        yield from _integer_steps(s, 1, "threads", 32)


def _bulk_tensor(s: Statement) -> Iterator[Change]:
    """The box's coordinates, the shared-memory address and the mbarrier of a bulk tensor copy."""
    for k, operand in enumerate(s.operands):
        opening, closing = operand.find("{"), operand.find("}")
        if opening < 0:
            continue
        coordinates = operand[opening + 1 : closing].split(",")
        for c, coordinate in enumerate(coordinates):
            new = ", ".join("%mutated" if n == c else x.strip() for n, x in enumerate(coordinates))
            changed = s.with_operand(k, operand[: opening + 1] + new + operand[closing:])
            step = f"add.s32 %mutated, {coordinate.strip()}, 1"
            yield f"coordinate {c} +1", f"{{ .reg .b32 %mutated; {step}; {changed} }}"
    load = s.operands[0].startswith("[") and "{" not in s.operands[0]
    yield _address_step(s, 0 if load else 1, "shared address", 128)
    if load and "mbarrier" in s.mnemonic:
        yield _address_step(s, 2, "barrier", 8)


def _mma(s: Statement) -> Iterator[Change]:
    yield _address_step(s, 0, "D column", 1)
    if s.operands[1].startswith("["):
        yield _address_step(s, 1, "A column", 1)
        descriptors = {2: "B"}
    else:
        descriptors = {1: "A", 2: "B"}
    for index, name in descriptors.items():
        for what, operation in _MATRIX_STEPS:
            yield f"{name} {what}", s.stepped(index, operation, ".b64")
    for what, operation in _INSTRUCTION_STEPS:
        yield f"instruction {what}", s.stepped(3, operation)
    if len(s.operands) > 4 and not s.operands[-1].startswith("!"):
        last = len(s.operands) - 1
        yield "accumulate negated", s.stepped(last, "not.pred {new}, {old}", ".pred")


def _commit(s: Statement) -> Iterator[Change]:
    yield _address_step(s, 0, "barrier", 8)


def _tmem_load(s: Statement) -> Iterator[Change]:
    yield _address_step(s, 1, "column", 1)


def _tmem_store(s: Statement) -> Iterator[Change]:
    yield _address_step(s, 0, "column", 1)


def _alloc(s: Statement) -> Iterator[Change]:
    yield "columns halved", s.stepped(1, "shr.u32 {new}, {old}, 1")


_OPERANDS: dict[str, Callable[[Statement], Iterator[Change]]] = {
    "mbarrier.init": _mbarrier_init,
    "mbarrier.arrive": _mbarrier_arrive,
    "mbarrier.expect_tx": _mbarrier_arrive,
    "mbarrier.complete_tx": _mbarrier_arrive,
    "mbarrier.try_wait": _mbarrier_wait,
    "mbarrier.test_wait": _mbarrier_wait,
    "bar.": _barrier,
    "barrier.": _barrier,
    "cp.async.bulk.tensor": _bulk_tensor,
    "tcgen05.mma": _mma,
    "tcgen05.commit": _commit,
    "tcgen05.ld": _tmem_load,
    "tcgen05.st": _tmem_store,
    "tcgen05.alloc": _alloc,
    "tcgen05.dealloc": _alloc,
}
