"""wmma.load, wmma.store and wmma.mma (PTX ISA 9.7.14.4), made of loads, stores and mma.sync at decode time.

Which elements a lane holds is left open by PTX (9.7.14.4.1). Here a fragment is one of mma.sync, or several side by
side: the matrix that has 16 or 32 rows or columns is cut into tiles of 16 and is mma's A, the other is cut into tiles
of 8 and is mma's B. For m8n32k16 those are B and A, and C and D lie transposed. `x` counts along M or N, `y` along K;
in C and D `x` counts along the side that is cut into tiles of 16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import SPACES, Builder
from fmha.emulator.decode.mma.mma_sync import type_bits
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Operand, Vector

_WIDE = {"m16n16k16": (16, 16, 16), "m8n32k16": (8, 32, 16), "m32n8k16": (32, 8, 16)}
# Type of A and B: shapes (M, N, K), types of C and D, bits of an element (PTX ISA 9.7.14.4, table of supported shapes).
_KINDS: dict[str, tuple[dict[str, tuple[int, int, int]], tuple[str, ...], int]] = {
    "f16": (_WIDE, ("f16", "f32"), 16),
    "bf16": (_WIDE, ("f32",), 16),
    "tf32": ({"m16n16k8": (16, 16, 8)}, ("f32",), 32),
    "f64": ({"m8n8k4": (8, 8, 4)}, ("f64",), 64),
    "s8": (_WIDE, ("s32",), 8),
    "u8": (_WIDE, ("s32",), 8),
    "s4": ({"m8n8k32": (8, 8, 32)}, ("s32",), 4),
    "u4": ({"m8n8k32": (8, 8, 32)}, ("s32",), 4),
    "b1": ({"m8n8k128": (8, 8, 128)}, ("s32",), 1),
}
_SHAPES = {name: shape for shapes, _, _ in _KINDS.values() for name, shape in shapes.items()}
_RESULT_BITS = {"f16": 16, "f32": 32, "s32": 32, "f64": 64}
_F16_REGISTERS = 8  # of A and B of f16, whatever the shape: those behind what a lane holds hold it again


@dataclass(frozen=True, slots=True)
class _Register:
    """What lane L holds in a register: elements (L / 4 + x, L % 4 * count + y), and those at y + 1 and on."""

    x: int
    y: int


@dataclass(frozen=True, slots=True)
class _Fragment:
    bits: int  # of an element
    count: int  # elements of a register
    registers: tuple[_Register, ...]
    copies: int  # times that the registers are there

    @property
    def register_type(self) -> str:
        return "f64" if self.bits == 64 else "b32"


def _large_is_a(shape: tuple[int, int, int]) -> bool:
    return shape[0] >= shape[1] or shape[0] == 16


def _multiplicand(matrix: str, shape: tuple[int, int, int], type_name: str) -> _Fragment:
    bits = _KINDS[type_name][2]
    count = max(32 // bits, 1)
    extent = shape[0] if matrix == "a" else shape[1]
    large = (matrix == "a") == _large_is_a(shape) and extent > 8
    tile = [_Register(x, y) for y in range(0, shape[2], 4 * count) for x in ((0, 8) if large else (0,))]
    step = 16 if large else 8
    registers = tuple(_Register(x + r.x, r.y) for x in range(0, extent, step) for r in tile)
    return _Fragment(bits, count, registers, _F16_REGISTERS // len(registers) if type_name == "f16" else 1)


def _accumulator(shape: tuple[int, int, int], type_name: str) -> _Fragment:
    """Registers in the order of mma.sync's: tiles of 16 x 8, the smaller side first."""
    bits = _RESULT_BITS[type_name]
    large, small = (shape[0], shape[1]) if _large_is_a(shape) else (shape[1], shape[0])
    rows = (0, 8) if large > 8 else (0,)
    count = 2 if bits == 16 else 1
    registers = tuple(
        _Register(x + row, y + e)
        for x in range(0, large, 16)
        for y in range(0, small, 8)
        for row in rows
        for e in range(0, 2, count)
    )
    return _Fragment(bits, count, registers, 1)


def _items(b: Builder, operand: Operand, fragment: _Fragment, what: str) -> tuple[Operand, ...]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    expected = len(fragment.registers) * fragment.copies
    if len(items) != expected:
        b.fail(f"{what} has {expected} registers, not {len(items)}")
    return items


class _Pointers:
    """Each lane's addresses in the matrix of a load or store.

    PTX asks for starts of rows that are aligned to the fragment's size; kernels pad rows to multiples of 16 bytes all
    the same, as CUDA allows, and the accesses here are aligned as ptxas's are.
    """

    def __init__(self, b: Builder, operand: Operand, space: str, stride: Operand | int) -> None:
        self._b = b
        self.base, self.width, self.offset = b.address(operand, space)
        self._type = f"u{self.width}"
        self._stride = b.number(stride, 32) if isinstance(stride, int) else b.src(stride, "u32")
        self._rows: dict[int, int] = {}

    def _emit(self, op: str, *src: int) -> int:
        unit = self._b.new_unit(self.width)
        self._b.emit(op, self._type, dst=[unit], src=list(src))
        return unit

    def _number(self, value: int) -> int:
        return self._b.number(value, self.width)

    def _wide(self, unit: int) -> int:
        if self.width == 32:
            return unit
        wide = self._b.new_unit(64)
        self._b.emit("cvt", "u64", type2="u32", dst=[wide], src=[unit], width_dst=64, width_src=32)
        return wide

    def begin(self, fragment: _Fragment, pair: int, x_major: bool) -> None:
        """Computes the address of each lane's element (L / 4, L % 4 * pair)."""
        b = self._b
        x, y = b.new_unit(32), b.new_unit(32)
        b.emit("shr", "u32", dst=[x], src=[b.special("%laneid", 32), b.number(2, 32)], width_dst=32)
        b.emit("and", "b32", dst=[y], src=[b.special("%laneid", 32), b.number(3, 32)])
        stride = self._wide(self._stride)
        if fragment.bits < 8:
            self._pitch = self._emit("div", stride, self._number(8 // fragment.bits))
        else:
            self._pitch = self._emit("mul_lo", stride, self._number(fragment.bits // 8))
        along = self._number(pair * fragment.bits // 8)
        if x_major:
            unit = self._emit("mad_lo", self._wide(x), self._pitch, self.base)
            self._lane = self._emit("mad_lo", self._wide(y), along, unit)
        else:
            unit = self._emit("mad_lo", self._wide(x), self._number(fragment.bits // 8), self.base)
            scaled = self._emit("mul_lo", self._pitch, self._number(pair))
            self._lane = self._emit("mad_lo", self._wide(y), scaled, unit)

    def row(self, index: int) -> int:
        """The unit that holds the address `index` rows (of the layout) further."""
        if index == 0:
            return self._lane
        if index not in self._rows:
            self._rows[index] = self._emit("mad_lo", self._pitch, self._number(index), self._lane)
        return self._rows[index]


@dataclass(frozen=True, slots=True)
class _Access:
    """wmma.load or wmma.store of one fragment."""

    pointers: _Pointers
    fragment: _Fragment
    x_major: bool  # consecutive y lie side by side
    mods: int

    def parts(self, r: _Register) -> Iterator[tuple[int, int]]:
        """(unit, bytes behind it) of each access of a register: one, or one an element."""
        size = self.fragment.bits // 8
        if self.x_major:
            yield self.pointers.row(r.x), self.pointers.offset + r.y * self.fragment.bits // 8
            return
        for e in range(self.fragment.count):
            yield self.pointers.row(r.y + e), self.pointers.offset + r.x * size

    @property
    def type(self) -> str:
        """Of one access."""
        whole = max(32, self.fragment.bits)
        return f"b{whole if self.x_major else self.fragment.bits}"


def _access(b: Builder, m: Modifiers, matrix: str) -> tuple[_Access, Operand]:
    """Of the matrix in memory; and the operand with its registers."""
    m.need("sync", "aligned")
    row = m.choose({"row": True, "col": False})
    shape = m.choose(_SHAPES)
    space = m.choose({name: name for name in ("global", "shared", "shared::cta")}, "generic")
    type_name = m.choose({name: name for name in (*_KINDS, *_RESULT_BITS)})
    m.done()
    if matrix in ("a", "b"):
        if type_name not in _KINDS or shape not in _KINDS[type_name][0].values():
            b.fail(f"wmma has no matrix {matrix.upper()} of .{type_name} in this shape")
        fragment = _multiplicand(matrix, shape, type_name)
        x_major = row == (matrix == "a")
        if fragment.bits < 8 and not x_major:
            b.fail(f"of .{type_name}, A is .row and B is .col")
        leading = shape[2] if x_major else shape[0] if matrix == "a" else shape[1]
    else:
        kinds = [results for shapes, results, _ in _KINDS.values() if shape in shapes.values()]
        if not any(type_name in results for results in kinds):
            b.fail(f"wmma has no matrix {matrix.upper()} of .{type_name} in this shape")
        fragment = _accumulator(shape, type_name)
        x_major = row == _large_is_a(shape)
        leading = shape[1] if row else shape[0]
    registers, address, *stride = b.operands(2, 3)
    if matrix == "d":
        registers, address = address, registers
    pointers = _Pointers(b, address, space, stride[0] if stride else leading)
    pointers.begin(fragment, 2 if matrix in ("c", "d") else fragment.count, x_major)
    return _Access(pointers, fragment, x_major, SPACES[space] << MODS["space_shift"]), registers


def _load(b: Builder, m: Modifiers) -> None:
    matrix = m.choose({"a": "a", "b": "b", "c": "c"})
    access, target = _access(b, m, matrix)
    fragment = access.fragment
    items = _items(b, target, fragment, f"matrix {matrix.upper()}")
    units = [b.dst(x, fragment.register_type) for x in items]
    width = max(32, fragment.bits)
    first = len(fragment.registers)
    # The address may be in a register that is also a destination: values come to the destinations last.
    values = [b.new_unit(width) for _ in fragment.registers]
    for value, r in zip(values, fragment.registers, strict=True):
        _load_register(b, access, value, r, width)
    for n, unit in enumerate(units):
        if unit >= 0:
            b.emit("mov", f"b{width}", dst=[unit], src=[values[n % first]])


def _load_register(b: Builder, access: _Access, value: int, r: _Register, width: int) -> None:
    for e, (unit, offset) in enumerate(access.parts(r)):
        part = value if e == 0 else b.new_unit(width)
        b.emit(
            "ld",
            access.type,
            dst=[part],
            src=[unit],
            mods=access.mods,
            immediate=offset,
            width_dst=width,
            width_src=access.pointers.width,
            aligned=True,
        )
        if e:
            place = b.number(1 << e * access.fragment.bits, 32)
            b.emit("mad_lo", "u32", dst=[value], src=[part, place, value])


def _store(b: Builder, m: Modifiers) -> None:
    m.need("d")
    access, source = _access(b, m, "d")
    fragment = access.fragment
    width = max(32, fragment.bits)
    for item, r in zip(_items(b, source, fragment, "matrix D"), fragment.registers, strict=True):
        value = b.src(item, fragment.register_type)
        for e, (unit, offset) in enumerate(access.parts(r)):
            if e:
                shifted = b.new_unit(32)
                bits = b.number(e * fragment.bits, 32)
                b.emit("shr", "u32", dst=[shifted], src=[value, bits], width_dst=32)
                value = shifted
            b.emit(
                "st",
                access.type,
                src=[unit, value],
                mods=access.mods,
                immediate=offset,
                width_dst=access.pointers.width,
                width_src=width,
                aligned=True,
            )


def _mma(b: Builder, m: Modifiers) -> None:
    operation = m.choose({"xor": 0, "and": MODS["mma_and"]}, -1)
    if operation >= 0:
        m.need("popc")
    m.need("sync", "aligned")
    m.choose({"row": True, "col": False})  # how A lay in memory: its fragment here does not tell
    m.choose({"row": True, "col": False})
    shape = m.choose(_SHAPES)
    types = {name: name for name in (*_KINDS, *_RESULT_BITS)}
    d = m.choose(types)
    a, b_type = m.choose(types), m.choose(types, "")
    a, b_type, c = (a, b_type, m.choose(types)) if b_type else ("f16", "f16", a)
    saturate = m.take("satfinite")
    m.take("rn")  # the default, and the only rounding of f64 that mma.sync has here
    m.done()
    if a != b_type or a not in _KINDS or shape not in _KINDS[a][0].values() or {c, d} - {*_KINDS[a][1]}:
        b.fail(f"wmma.mma of .{a} by .{b_type} into .{d} from .{c} does not exist in this shape")
    if saturate and (d != "s32" or a == "b1"):
        b.fail(".satfinite is modelled for integers alone")
    if (operation >= 0) != (a == "b1"):
        b.fail(".xor.popc and .and.popc belong to .b1")
    mods = type_bits(d, a, b_type, c) | (MODS["mma_sat"] if saturate else 0) | max(operation, 0)
    _emit_tiles(b, shape, (d, a, b_type, c), mods)


def _emit_tiles(b: Builder, shape: tuple[int, int, int], types: tuple[str, str, str, str], mods: int) -> None:
    """An mma.sync for each tile of 16 x 8, or of 8 x 8."""
    if len(b.instruction.operands) != 4:
        b.fail(f"4 operands are expected, not {len(b.instruction.operands)}")
    d_items, a_items, b_items, c_items = b.instruction.operands
    d_type, a_type, _, c_type = types
    fragments = _accumulator(shape, d_type), _accumulator(shape, c_type)
    dst = [b.dst(x, fragments[0].register_type) for x in _items(b, d_items, fragments[0], "matrix D")]
    from_c = [b.src(x, fragments[1].register_type) for x in _items(b, c_items, fragments[1], "matrix C")]
    sides = []
    for matrix, operand in (("a", a_items), ("b", b_items)):
        fragment = _multiplicand(matrix, shape, a_type)
        units = [b.src(x, fragment.register_type) for x in _items(b, operand, fragment, f"matrix {matrix.upper()}")]
        sides.append(units[: len(fragment.registers)])
    large, small = sides if _large_is_a(shape) else sides[::-1]
    extents = sorted(shape[:2], reverse=True)
    tiles = max(extents[0] // 16, 1), extents[1] // 8
    if extents[0] == 8:
        mods |= MODS["mma_m8"]
    # A tile's D may lie in registers that another tile still reads.
    result = [b.new_unit(b.width(unit) if unit >= 0 else 32) for unit in dst]
    type_name = "f64" if d_type == "f64" else "b32"
    for index in range(tiles[0] * tiles[1]):
        i, j = divmod(index, tiles[1])
        src = [*_slice(large, i, tiles[0]), *_slice(small, j, tiles[1]), *_slice(from_c, index, tiles[0] * tiles[1])]
        out = _slice(result, index, tiles[0] * tiles[1])
        b.emit("mma_sync", type_name, dst=out, src=src, mods=mods, immediate=shape[2], aligned=True)
    width = 64 if d_type == "f64" else 32
    for unit, value in zip(dst, result, strict=True):
        if unit >= 0:
            b.emit("mov", f"b{width}", dst=[unit], src=[value])


def _slice(units: list[int], index: int, parts: int) -> list[int]:
    size = len(units) // parts
    return units[index * size : (index + 1) * size]


def wmma(b: Builder, m: Modifiers) -> None:
    """wmma.load, wmma.store and wmma.mma."""
    m.choose({"load": _load, "store": _store, "mma": _mma})(b, m)


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {"wmma": wmma}
