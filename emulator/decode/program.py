"""From an entry function to the tables that the core runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fmha.emulator import _core
from fmha.emulator._core import MODS
from fmha.emulator.decode import barriers, policies, table, tcgen05, textures, warp, wgmma
from fmha.emulator.decode.allocation import RegisterPlace, allocate, read_by
from fmha.emulator.decode.builder import Builder, Emitted, Symbols, pack_record
from fmha.emulator.decode.control import clusters, control, device_runtime, recursion, stack, system_calls
from fmha.emulator.decode.control.inlined_calls import inline_calls
from fmha.emulator.decode.copies import bulk, cp_async
from fmha.emulator.decode.memory import atomics, load_store, multimem, state_space
from fmha.emulator.decode.memory.atomics import ATOM_CODES
from fmha.emulator.decode.mma import matrix_move, mma_sync, wmma
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.decode.scalar import arithmetic, conversion, floating, integers, video
from fmha.emulator.decode.shared_arrays import mark_arrays
from fmha.emulator.ptx import Function, Instruction, ParsedModule, PtxError, Variable
from fmha.emulator.ptx.cfg import reconvergence
from fmha.emulator.ptx.uncollected import uncollected

_MOST_LOCAL, _MOST_PARAMS = 512 << 10, 32764  # bytes: CUDA C++ programming guide, technical specifications
_NO_END = (1 << 32) - 1
_IDENTIFIER = re.compile(r"[A-Za-z_$%][\w$]*")
FAMILIES = (
    arithmetic,
    integers,
    floating,
    conversion,
    load_store,
    state_space,
    atomics,
    barriers,
    control,
    device_runtime,
    system_calls,
    bulk,
    cp_async,
    clusters,
    mma_sync,
    matrix_move,
    multimem,
    policies,
    recursion,
    stack,
    tcgen05,
    textures,
    video,
    warp,
    wgmma,
    wmma,
)
FUNCTIONS = {opcode: form for family in FAMILIES for opcode, form in family.FORMS.items()}
FORMS = FUNCTIONS | {opcode: table.decoder(opcode, FUNCTIONS.get(opcode)) for opcode in table.LINES}


@dataclass(frozen=True, slots=True)
class Decoded:
    """A program for the core, and what is needed to name its instructions."""

    program: _core.Program
    sources: tuple[Instruction, ...]  # by pc
    shared_static: int  # bytes
    dynamic_align: int  # of the .extern .shared arrays, 1 when there is none
    registers: Mapping[str, RegisterPlace]  # by name
    live: int  # of a thread's registers of 32 bits, the most that hold at once what is still read
    shared: tuple[tuple[str, int, int], ...] = ()  # variables in shared memory: name, begin and end, by their places
    apart: _core.Program | None = None  # the same, each register in a place of its own, where that was asked for


def uses_heap(decoded: Decoded) -> bool:
    """Whether the program calls malloc or free."""
    return any(source.opcode in ("%malloc", "%free") for source in decoded.sources)


def device_steps(decoded: Decoded) -> set[str]:
    """What the program asks of the device runtime: "launch" is one of the steps of one that may launch others."""
    return {name for source in decoded.sources if source.opcode == "%device" for name in source.modifiers}


def _align(offset: int, alignment: int) -> int:
    return (offset + alignment - 1) // alignment * alignment


def parameter_layout(function: Function) -> tuple[dict[str, int], int]:
    """Byte offset of each kernel parameter, and the size of all of them."""
    offsets: dict[str, int] = {}
    end = 0
    for parameter in function.params:
        offsets[parameter.name] = _align(end, parameter.align)
        end = offsets[parameter.name] + parameter.nbytes
    return offsets, end


def _shared_layout(variables: list[Variable]) -> tuple[dict[str, int], int, int]:
    """Static arrays one after the other; dynamic (extern, unsized) ones share what follows them, aligned to 16 bytes at
    least, as an H200 shows."""
    offsets: dict[str, int] = {}
    end = _core.SHARED_START
    for v in variables:
        if not v.extern:
            offsets[v.name] = _align(end, v.align)
            end = offsets[v.name] + v.nbytes
    dynamic = [v for v in variables if v.extern]
    alignment = max((v.align for v in dynamic), default=1)
    if dynamic:
        end = _align(end, max(alignment, 16))
    offsets.update((v.name, end) for v in dynamic)
    if end >= 1 << 31:
        raise PtxError(f"{end - _core.SHARED_START} bytes of shared memory", variables[0].line)
    return offsets, end - _core.SHARED_START, alignment


def _symbols(module: ParsedModule, function: Function, device: Mapping[str, int]) -> tuple[Symbols, int, int, int]:
    # Arrays of the module that this kernel does not use are not in its memory.
    used = {name for i in function.body for name in _IDENTIFIER.findall(i.text)}
    candidates = (*(v for v in module.variables.values() if v.name in used), *function.variables.values())
    shared = [v for v in candidates if v.space == "shared"]
    shared_offsets, shared_bytes, alignment = _shared_layout(shared)
    local: dict[str, int] = {}
    call_params: dict[str, int] = {}
    local_bytes = 0
    for v in function.variables.values():
        if v.space in ("local", "param"):
            offset = _align(local_bytes, v.align)
            local_bytes = offset + v.nbytes
            if v.space == "local":
                local[v.name] = offset
            else:
                call_params[v.name] = _core.CALL_PARAMS + offset
    params, param_bytes = parameter_layout(function)
    for what, size, most in (
        ("local memory a thread", local_bytes, _MOST_LOCAL),
        ("parameters", param_bytes, _MOST_PARAMS),
    ):
        if size > most:
            raise PtxError(f"{size} bytes of {what}; at most {most} are allowed", function.line)
    return Symbols(shared_offsets, local, params, dict(device), call_params), shared_bytes, local_bytes, alignment


def _extents(module: ParsedModule, function: Function, symbols: Symbols) -> dict[str, tuple[int, int]]:
    """Where each shared array begins and ends. Dynamic ones end nowhere: the launch says how large they are."""
    extents: dict[str, tuple[int, int]] = {}
    for name, begin in symbols.shared.items():
        v = function.variables.get(name) or module.variables[name]
        extents[name] = (begin, _NO_END if v.extern or not v.nbytes else begin + v.nbytes)
    return extents


def _decode_body(builder: Builder, function: Function) -> dict[int, int]:
    """Emits every instruction; returns the pc at which each body index starts, the end included."""
    start: dict[int, int] = {}
    for index, instruction in enumerate(function.body):
        start[index] = len(builder.emitted)
        builder.begin(instruction, index)
        form = FORMS.get(instruction.opcode)
        if form is None:
            builder.fail(f"instruction {instruction.mnemonic} is not modelled")
        form(builder, Modifiers(instruction))
    start[len(function.body)] = len(builder.emitted)
    return start


def _falls_off(function: Function) -> bool:
    last = function.body[-1]
    return (
        last.opcode not in ("ret", "exit", "trap")
        or last.guard is not None
        or len(function.body) in function.labels.values()
    )


def _mark_validated_loads(emitted: list[Emitted]) -> None:
    """Plain loads of what a compare-and-swap of the same function addresses, by the same register or one with the same
    value.

    The CUDA programming guide's compare-and-swap loops begin with one: a stale value costs a turn.
    """
    swaps = [e for e in emitted if e.op == "atom" and e.mods >> MODS["atom_shift"] & 0xF == ATOM_CODES["cas"]]
    if not swaps:
        return
    value = _Values(emitted)
    swapped = {(value.of(e.src[0]), e.immediate) for e in swaps}
    for e in emitted:
        if e.op == "ld" and (value.of(e.src[0]), e.immediate) in swapped:
            e.mods |= MODS["validated"]


def _mark_unread_atomics(emitted: list[Emitted]) -> None:
    """atom whose result nothing reads: nvcc writes it where ptxas makes red of it."""
    atomics = [e for e in emitted if e.op == "atom" and e.dst]
    if not atomics:
        return
    read = {unit for e in emitted for unit in read_by(e)}
    for e in atomics:
        if read.isdisjoint(e.dst):
            e.mods |= MODS["unread"]


class _Values:
    """Registers that are computed alike have one value: each defined by one instruction, from such registers."""

    _COPIES = ("mov", "cvta", "cvta_to")
    _PURE = ("add", "sub", "mul_lo", "mul_wide", "mad_lo", "mad_wide", "shl", "shr", "and_", "or_", "cvt")
    _DEEPEST = 12

    def __init__(self, emitted: list[Emitted]) -> None:
        self._definitions: dict[int, Emitted | None] = {}
        for e in emitted:
            for unit in e.dst:
                self._definitions[unit] = None if unit in self._definitions or e.guard >= 0 else e

    def of(self, unit: int, depth: int = 0) -> object:
        e = self._definitions.get(unit)
        if e is None or depth == self._DEEPEST:
            return unit
        if e.op in self._COPIES:
            return self.of(e.src[0], depth + 1)
        if e.op.rstrip("_") not in (name.rstrip("_") for name in self._PURE):
            return unit
        operands = tuple(self.of(s, depth + 1) for s in e.src)
        return (e.op, e.type, e.mods, e.immediate, e.width_dst, e.width_src, operands)


def _pack(emitted: list[Emitted], start: Mapping[int, int], meet: list[int]) -> tuple[bytes, bytes]:
    records: list[bytes] = []
    operands: list[int] = []
    for e in emitted:
        target = start[e.target] if e.target >= 0 else -1
        body_meet = meet[e.body_index] if e.op in ("bra", "brx") else -1
        records.append(pack_record(e, len(operands), target, start[body_meet] if body_meet >= 0 else -1))
        operands += e.dst
        operands += e.src
        operands += [start[index] for index in e.targets]
        operands += [x for kept in e.kept for x in kept]
    return b"".join(records), b"".join(x.to_bytes(4, "little", signed=True) for x in operands)


def decode_entry(module: ParsedModule, name: str, device_symbols: Mapping[str, int], apart: bool = False) -> Decoded:
    """Decodes entry `name`. `device_symbols`: addresses of the module's .global and .const variables. `apart`: also
    the program whose registers share no places, so that its instructions can be ordered anew.

    Raises PtxError for anything the machine does not model, naming the line.
    """
    with uncollected():
        return _decode_entry(module, name, device_symbols, apart)


def _decode_entry(module: ParsedModule, name: str, device_symbols: Mapping[str, int], apart: bool) -> Decoded:
    module = device_runtime.with_runtime(module)
    if not module.functions[name].body:
        raise PtxError(f"entry {name} has no body", module.functions[name].line)
    inlined = inline_calls(module, module.functions[name])
    function = inlined.function
    symbols, shared_bytes, local_bytes, dynamic_align = _symbols(module, function, device_symbols)
    symbols.framed = inlined.framed
    builder = Builder(module, function, symbols)
    if stack.uses_stack(function):
        stack.begin_stack(builder, function.body[0], local_bytes)
        local_bytes += stack.STACK_BYTES
    start = _decode_body(builder, function)
    sources = [function.body[e.body_index] for e in builder.emitted]
    if _falls_off(function):
        last = function.body[-1]
        end = Instruction("ret", (), (), None, last.line, "(end of the function)", last.location)
        builder.begin(end, len(function.body) - 1)
        builder.emit("ret")
        sources.append(end)
    _mark_validated_loads(builder.emitted)
    _mark_unread_atomics(builder.emitted)
    extents = _extents(module, function, symbols)
    arrays = mark_arrays(builder, extents)
    meet = reconvergence(function)

    def packed() -> _core.Program:
        insts, operands = _pack(builder.emitted, start, meet)
        return _core.Program(
            insts,
            operands,
            builder.consts(),
            units=builder.units,
            shared_static=shared_bytes,
            local_bytes=local_bytes,
            param_bytes=parameter_layout(function)[1],
            arrays=arrays,
        )

    other = None
    if apart:
        allocate(builder, start, shared=False)
        other = packed()
    registers, live = allocate(builder, start)
    placed = sorted(((name, *extent) for name, extent in extents.items()), key=lambda variable: variable[1:])
    return Decoded(packed(), tuple(sources), shared_bytes, dynamic_align, registers, live, tuple(placed), other)
