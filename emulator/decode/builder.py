"""Building a decoded program: register units, constants, records, which are packed as the core says."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from fmha.emulator._core import (
    CONST_FIELDS,
    CONST_KINDS,
    CONST_RECORD_BYTES,
    INST_FIELDS,
    INST_RECORD_BYTES,
    MODS,
    OPS,
    SPACES,
    SPECIALS,
    TYPES,
    WIDTHS,
)
from fmha.emulator.decode.control.frames import Framed
from fmha.emulator.ptx import (
    Address,
    Function,
    Immediate,
    Instruction,
    Negated,
    Operand,
    ParsedModule,
    PtxError,
    Register,
    Sink,
    Special,
    SymbolRef,
)

CONST_BITS32, CONST_BITS64 = CONST_KINDS["bits32"], CONST_KINDS["bits64"]
CONST_SHARED32, CONST_SHARED64 = CONST_KINDS["shared32"], CONST_KINDS["shared64"]
CONST_SPECIAL, CONST_PRED = CONST_KINDS["special"], CONST_KINDS["pred"]
_MOST = 1 << 63  # of an immediate
_INFINITY, _SIGN = 0x7F80_0000, 0x8000_0000  # of f32

_FUNCTION_BASE = 0x500_0000_0000


def packing(fields: Sequence[tuple[str, int, str]], size: int, packed: Sequence[str]) -> struct.Struct:
    """How the core's record of these fields is packed, what alignment leaves between them included.

    :raises ValueError: The core has other fields, or another order, than those that are packed here.
    """
    if (names := [name for name, _, _ in fields]) != list(packed):
        raise ValueError(f"the core's record has the fields {names}, and packed are {list(packed)}")
    form, end = "<", 0
    for _, offset, kind in fields:
        form += "x" * (offset - end) + kind
        end = offset + struct.calcsize(kind)
    return struct.Struct(form + "x" * (size - end))


CONST = packing(CONST_FIELDS, CONST_RECORD_BYTES, ("unit", "kind", "special", "bits"))
INST = packing(
    INST_FIELDS,
    INST_RECORD_BYTES,
    (
        *("op", "type", "type2", "width_dst", "width_src", "n_dst", "aligned", "guard", "guard_negated", "arrays"),
        *("n_src", "mods", "operands", "target", "reconverge", "line", "immediate"),
    ),
)


def width_of(type_name: str) -> int:
    """Bits of a register of this type; 8-bit values live in 16-bit registers."""
    return WIDTHS[type_name]


def units_of(width: int) -> int:
    """Units of 32 lanes that a register of so many bits takes; a predicate takes one."""
    return max(1, width // 32)


def function_address(module: ParsedModule, name: str) -> int:
    """Good for comparing and calling only: no allocation lies there."""
    return _FUNCTION_BASE + 16 * list(module.functions).index(name)


@dataclass
class Emitted:
    """One record, its branch target still a body index."""

    op: str
    type: str
    type2: str
    width_dst: int
    width_src: int
    dst: list[int]
    src: list[int]
    mods: int
    immediate: int
    aligned: bool
    guard: int
    guard_negated: bool
    target: int
    body_index: int
    line: int
    targets: tuple[int, ...] = ()  # of an indexed branch, body indices
    kept: tuple[tuple[int, int], ...] = ()  # unit and bits of each register that a call keeps, or brings back
    arrays: int = 0  # the number of the set of shared arrays that the address was computed from, 0 for none


@dataclass
class Symbols:
    """Where a function's variables live: bytes into shared or local memory, parameters, device addresses."""

    shared: dict[str, int] = field(default_factory=dict)
    local: dict[str, int] = field(default_factory=dict)
    param: dict[str, int] = field(default_factory=dict)
    device: dict[str, int] = field(default_factory=dict)
    call_params: dict[str, int] = field(default_factory=dict)  # of call sites: .param addresses above the kernel's
    framed: Mapping[str, Framed] = field(default_factory=dict)  # of recursive functions

    def shared_number(self, name: str) -> int:
        """Tells the end of one array from the start of the next, where both are constants; there are 8 bits for it."""
        return min(list(self.shared).index(name), 255)


# Whose handlers take -1 for a sink, `_`; what any other instruction would write there goes to a register of its own.
_WRITES_NOTHING = frozenset({"setp", "elect", "mbarrier", "clusterlaunchcontrol", "ld", "ldu", "call"})


class Builder:
    """Collects records while the decoders walk a body. One instance a function."""

    def __init__(self, module: ParsedModule, function: Function, symbols: Symbols) -> None:
        self.module = module
        self.function = function
        self.symbols = symbols
        self.emitted: list[Emitted] = []
        self.units = 0
        self._widths: dict[int, int] = {}
        self._registers: dict[str, int] = {}
        self._consts: dict[tuple[int, int, int], int] = {}
        self._instruction: Instruction | None = None
        self._body_index = 0
        self.stack = -1  # the stack pointer's unit, in a function with alloca
        self.policies: frozenset[str] | None = (
            None  # registers that hold cache policies alone, once asked for (policies.py)
        )

    # The instruction at hand

    def begin(self, instruction: Instruction, body_index: int) -> None:
        """What is emitted from now on is of this instruction."""
        self._instruction = instruction
        self._body_index = body_index

    @property
    def instruction(self) -> Instruction:
        """The instruction that is being decoded."""
        assert self._instruction is not None
        return self._instruction

    def fail(self, message: str) -> NoReturn:
        """Raises PtxError with the instruction's line."""
        raise PtxError(message, self.instruction.line, self.instruction.text)

    # Units

    def new_unit(self, width: int) -> int:
        """A place for a register of so many bits, counted in units."""
        unit = self.units
        self._widths[unit] = width
        self.units += units_of(width)
        return unit

    def width(self, unit: int) -> int:
        """Bits of the register or constant that begins with this unit."""
        return self._widths[unit]

    def shared_units(self) -> dict[int, str]:
        """The units that hold the address of a shared array, or of a place in one."""
        names = list(self.symbols.shared)
        return {
            unit: names[number]
            for (kind, _, number), unit in self._consts.items()
            if kind in (CONST_SHARED32, CONST_SHARED64) and number < 255
        }

    def const_units(self) -> list[int]:
        """The units that constants are in."""
        return list(self._consts.values())

    def register_units(self) -> dict[str, int]:
        """The first unit of each register, by name."""
        return dict(self._registers)

    def renumber(self, place: Mapping[int, int], units: int) -> None:
        """Moves registers and constants: `place` says where to, by their first units; there are `units` then."""
        for e in self.emitted:
            e.dst = [place[unit] if unit >= 0 else unit for unit in e.dst]
            e.src = [place[unit] if unit >= 0 else unit for unit in e.src]
            e.kept = tuple((place[unit], width) for unit, width in e.kept)
            if e.guard >= 0:
                e.guard = place[e.guard]
        self._consts = {key: place[unit] for key, unit in self._consts.items()}
        self._registers = {name: place[unit] for name, unit in self._registers.items() if unit in place}
        self._widths = {place[unit]: width for unit, width in self._widths.items() if unit in place}
        self.units = units

    def register(self, register: Register) -> int:
        """The unit of a declared register."""
        unit = self._registers.get(register.name)
        if unit is None:
            unit = self._registers[register.name] = self.new_unit(width_of(register.type))
        return unit

    def condition_code(self) -> int:
        """CC.CF, the carry flag, as a predicate."""
        return self.register(Register("CC.CF", "pred"))

    def const(self, kind: int, bits: int, special: int = 0) -> int:
        """The unit of a constant, the same for equal ones; an address that no 64 bits hold is refused."""
        if not 0 <= bits < 1 << 64:
            self.fail(f"an address that is computed to {bits}: it has to be in 0 to 2^64 - 1")
        key = (kind, bits, special)
        unit = self._consts.get(key)
        if unit is None:
            width = 64 if kind in (CONST_BITS64, CONST_SHARED64) else 32
            unit = self._consts[key] = self.new_unit(width)
        return unit

    def number(self, value: int, width: int) -> int:
        """The unit of a number of so many bits, 1 for a predicate."""
        if width == 1:
            return self.const(CONST_PRED, int(value != 0))
        if width == 64:
            return self.const(CONST_BITS64, value & 0xFFFF_FFFF_FFFF_FFFF)
        bits = value & ((1 << width) - 1)
        # A 16-bit source is read with a 16-bit stride, so both halves of each word carry it.
        return self.const(CONST_BITS32, bits | bits << 16 if width == 16 else bits)

    def special(self, name: str, width: int) -> int:
        """The unit of a special register. PtxError for one that is not there, or has other bits."""
        index = SPECIALS.get("warp_size" if name == "WARP_SZ" else name.lstrip("%").replace(".", "_"))
        if (name.startswith("%envreg") and index is None) or name.endswith(".w"):
            index = SPECIALS["zero"]  # no driver sets those; a fourth dimension has index 0
        if name.startswith("%pm"):  # a performance counter that nobody has set up
            if width != (64 if name.endswith("_64") else 32):
                self.fail(f"special register {name} does not have {width} bits")
            return self.number(0, width)
        if width == 64 and name in ("%gridid", "%current_graph_exec"):
            return self.number(int(name == "%gridid"), 64)
        if index is None:
            self.fail(f"special register {name} is not modelled")
        if width != (1 if name == "%is_explicit_cluster" else 32):
            self.fail(f"special register {name} is 32 bits wide, the instruction reads {width}")
        return self.const(CONST_SPECIAL, 0, index)

    def symbol(self, name: str, offset: int, width: int) -> int:
        """A unit that holds the address of a variable in its own state space."""
        if name in self.symbols.shared:
            kind = CONST_SHARED64 if width == 64 else CONST_SHARED32
            return self.const(kind, self.symbols.shared[name] + offset, self.symbols.shared_number(name))
        for table in (self.symbols.param, self.symbols.local, self.symbols.call_params, self.symbols.device):
            if name in table:
                return self.number(table[name] + offset, width)
        if name in self.symbols.framed:
            return self._framed(name, offset, width)
        if name in self.module.functions:
            return self.number(function_address(self.module, name), width)
        self.fail(f"address of '{name}': functions and variables of this kind are not modelled")

    def _framed(self, name: str, offset: int, width: int) -> int:
        """The address of a variable of a frame."""
        framed = self.symbols.framed[name]
        total = self.new_unit(64)
        self.emit(
            "add", "u64", dst=[total], src=[self.register(framed.pointer), self.number(framed.offset + offset, 64)]
        )
        if width == 64:
            return total
        narrow = self.new_unit(32)
        self.emit("cvt", "u32", type2="u64", dst=[narrow], src=[total], width_dst=32, width_src=64)
        return narrow

    # Operands

    def operands(self, *counts: int) -> tuple[Operand, ...]:
        """The instruction's, which are to be one of so many."""
        if len(self.instruction.operands) not in counts:
            self.fail(f"{' or '.join(map(str, counts))} operands are expected, not {len(self.instruction.operands)}")
        return self.instruction.operands

    def dst(self, operand: Operand, type_name: str, *, any_width: bool = False) -> int:
        """The unit of a destination; -1 for `_` of an instruction that writes nothing. PtxError for another width."""
        width = self._width(type_name)
        if isinstance(operand, Sink):
            return -1 if self.instruction.opcode in _WRITES_NOTHING else self.new_unit(width)
        if not isinstance(operand, Register):
            self.fail(f"a destination register is expected, not {operand}")
        self._check_width(operand, type_name, any_width)
        return self.register(operand)

    def src(self, operand: Operand, type_name: str, *, any_width: bool = False) -> int:
        """The unit of a source: register, constant or special register. PtxError for another width."""
        width = self._width(type_name)
        if isinstance(operand, Register):
            self._check_width(operand, type_name, any_width)
            return self.register(operand)
        if isinstance(operand, Immediate):
            return self.number(self.immediate_bits(operand, type_name), width)
        if isinstance(operand, Special):
            return self.special(operand.name, width)
        if isinstance(operand, SymbolRef):
            return self.symbol(operand.name, operand.offset, width)
        if isinstance(operand, Negated) and type_name == "pred":
            inverse = self.new_unit(1)
            self.emit("not", "pred", dst=[inverse], src=[self.src(operand.register, "pred")])
            return inverse
        self.fail(f"a source operand of type .{type_name} is expected, not {operand}")

    def pred(self, operand: Operand) -> tuple[int, bool]:
        """A predicate source and whether it is negated."""
        if isinstance(operand, Negated):
            return self.src(operand.register, "pred"), True
        return self.src(operand, "pred"), False

    def address(self, operand: Operand, space: str) -> tuple[int, int, int]:
        """(unit, width, constant offset) of an address operand."""
        if isinstance(operand, SymbolRef) and operand.element:
            operand = Address(SymbolRef(operand.name), operand.offset)
        if not isinstance(operand, Address):
            self.fail(f"an address is expected, not {operand}")
        base = operand.base
        if isinstance(base, Register):
            width = width_of(base.type)
            if width not in (32, 64):
                self.fail(f"an address register has 32 or 64 bits, {base.name} has {width}")
            return self.register(base), width, operand.offset
        width = 32 if space.startswith("shared") else 64
        if isinstance(base, SymbolRef) and base.name in self.symbols.framed:
            framed = self.symbols.framed[base.name]
            return self.register(framed.pointer), 64, framed.offset + base.offset + operand.offset
        if isinstance(base, SymbolRef):
            return self.symbol(base.name, base.offset + operand.offset, width), width, 0
        return self.number(base.bits + operand.offset, width), width, 0

    def address_value(self, operand: Operand, space: str, want: int) -> int:
        """A unit of `want` bits that holds the whole address, with an addition emitted where there is an offset."""
        unit, width, offset = self.address(operand, space)
        if width != want:
            if want != 32:
                self.fail(f"a {want}-bit address is expected")
            narrow = self.new_unit(32)
            self.emit("cvt", "u32", type2="u64", dst=[narrow], src=[unit], width_dst=32, width_src=64)
            unit = narrow
        if offset:
            total = self.new_unit(want)
            name = f"u{want}"
            self.emit("add", name, dst=[total], src=[unit, self.number(offset, want)])
            unit = total
        return unit

    def immediate_bits(self, operand: Immediate, type_name: str) -> int:
        """A constant as the instruction reads it."""
        if operand.kind == "int":
            if type_name in ("f32", "f64"):
                self.fail(f"integer constant {operand.bits} where .{type_name} is expected")
            return operand.bits
        if type_name == "f32" and operand.kind == "f64":
            value = struct.unpack("<d", struct.pack("<Q", operand.bits))[0]
            try:
                return int(struct.unpack("<I", struct.pack("<f", value))[0])
            except OverflowError:  # rounds to an infinity
                return _INFINITY | (_SIGN if value < 0 else 0)
        if type_name == "f64" and operand.kind == "f32":
            value = struct.unpack("<f", struct.pack("<I", operand.bits))[0]
            return int(struct.unpack("<Q", struct.pack("<d", value))[0])
        return operand.bits

    def _width(self, type_name: str) -> int:
        """That of a type which an operand has to have: of a part of it there may be none."""
        if type_name not in WIDTHS:
            self.fail(f"no register has the type .{type_name} that an operand would have to have")
        return width_of(type_name)

    def _check_width(self, register: Register, type_name: str, any_width: bool) -> None:
        have, want = width_of(register.type), width_of(type_name)
        if have == want or (any_width and have > want and have != 1):
            return
        self.fail(f"register {register.name} is .{register.type}, the instruction needs .{type_name}")

    # Records

    def emit(
        self,
        op: str,
        type_name: str = "none",
        *,
        dst: list[int] | None = None,
        src: list[int] | None = None,
        type2: str = "none",
        mods: int = 0,
        immediate: int = 0,
        aligned: bool = False,
        target: int = -1,
        targets: tuple[int, ...] = (),
        kept: tuple[tuple[int, int], ...] = (),
        width_dst: int = 0,
        width_src: int = 0,
    ) -> None:
        """Adds one record; widths default to that of the type. `target` is an index into the function's body."""
        instruction = self.instruction
        if not -_MOST <= immediate < _MOST:
            self.fail("a constant has more than 64 bits")
        guard, negated = -1, False
        if instruction.guard is not None:
            guard, negated = self.register(instruction.guard.register), instruction.guard.negated
        width = width_of(type_name) if type_name != "none" else 0
        self.emitted.append(
            Emitted(
                op=op,
                type=type_name,
                type2=type2,
                width_dst=width_dst or width,
                width_src=width_src or width,
                dst=dst or [],
                src=src or [],
                mods=mods,
                immediate=immediate,
                aligned=aligned,
                guard=guard,
                guard_negated=negated,
                target=target,
                body_index=self._body_index,
                line=instruction.line,
                targets=targets,
                kept=kept,
            )
        )

    def consts(self) -> bytes:
        """Constants as the core reads them."""
        return b"".join(CONST.pack(unit, kind, special, bits) for (kind, bits, special), unit in self._consts.items())


def pack_record(e: Emitted, first_operand: int, target: int, reconverge: int) -> bytes:
    """A record as the core reads it, CONST and INST of its header."""
    return INST.pack(
        OPS[e.op],
        TYPES[e.type],
        TYPES[e.type2],
        e.width_dst,
        e.width_src,
        len(e.dst),
        e.aligned,
        e.guard,
        e.guard_negated,
        e.arrays,
        len(e.src),
        e.mods,
        first_operand,
        target,
        reconverge,
        e.line,
        e.immediate,
    )


__all__ = ["MODS", "SPACES", "Builder", "Symbols", "pack_record", "units_of", "width_of"]
