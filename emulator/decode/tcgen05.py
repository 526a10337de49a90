"""The tcgen05 family (PTX ISA 9.7.16)."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Address, Immediate, Negated, Operand, Register, Vector

# Shape -> (code, registers a repeat), 9.7.16.8.3.
_SHAPES = {"32x32b": (0, 1), "16x64b": (1, 1), "16x128b": (2, 2), "16x256b": (3, 4), "16x32bx2": (4, 1)}
_KINDS = {"f16": 0, "tf32": 1, "f8f6f4": 2, "i8": 3, "mxf8f6f4": 4, "mxf4": 5, "mxf4nvf4": 6}
# Kind -> scale vector size -> scales a row (9.7.16.10.7.1); None where the size may be left out.
_SCALES: dict[str, dict[str | None, int]] = {
    "mxf8f6f4": {None: 1, "scale_vec::1X": 1, "block32": 1},
    "mxf4": {None: 2, "scale_vec::2X": 2, "block32": 2},
    "mxf4nvf4": {"scale_vec::2X": 2, "block32": 2, "scale_vec::4X": 4, "block16": 4},
}
_SCALE_SIZES = ("scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32")
_COLLECTOR_OPS = ("fill", "use", "lastuse", "discard")
# Copy shape -> the multicast it needs -> code, 9.7.16.9.2.
_COPIES: dict[str, dict[str | None, int]] = {
    "128x256b": {None: 0},
    "4x256b": {None: 1},
    "128x128b": {None: 2},
    "64x128b": {"warpx2::02_13": 3, "warpx2::01_23": 4},
    "32x128b": {"warpx4": 5},
}
_MULTICASTS = ("warpx2::02_13", "warpx2::01_23", "warpx4")


def tcgen05(b: Builder, m: Modifiers) -> None:
    """tcgen05.*, each by its own function."""
    action = m.choose({name: name for name in _TCGEN05})
    _TCGEN05[action](b, m)


def _pair(m: Modifiers) -> int:
    """The modifier bit of .cta_group."""
    return m.choose({"cta_group::1": 0, "cta_group::2": MODS["tc_pair"]})


def _one_of(m: Modifiers, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if m.take(name)), None)


def _operands(b: Builder, low: int, high: int | None = None) -> tuple[Operand, ...]:
    operands = b.instruction.operands
    high = low if high is None else high
    if not low <= len(operands) <= high:
        b.fail(f"{low if low == high else f'{low} to {high}'} operands are expected, not {len(operands)}")
    return operands


# ld and st


def _shape(b: Builder, m: Modifiers) -> tuple[str, int, int]:
    """(shape, registers, modifier bits) of a tcgen05.ld or tcgen05.st."""
    m.need("sync", "aligned")
    shape = m.choose({name: name for name in _SHAPES})
    code, registers = _SHAPES[shape]
    count = registers * m.choose({f"x{1 << n}": 1 << n for n in range(8)})
    if count > 128:
        b.fail("more than 128 registers")
    return shape, count, code << MODS["tc_shape_shift"]


def _tmem(b: Builder, operand: Operand) -> tuple[int, int]:
    """(unit, constant offset) of a tensor-memory address."""
    if not isinstance(operand, Address):
        b.fail(f"a tensor-memory address is expected, not {operand}")
    unit, width, offset = b.address(operand, "shared")
    if width != 32:
        b.fail("a tensor-memory address has 32 bits")
    return unit, offset


def _tmem_value(b: Builder, operand: Operand) -> int:
    _tmem(b, operand)
    return b.address_value(operand, "shared", 32)


def _registers(b: Builder, operand: Operand, count: int) -> tuple[Operand, ...]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        b.fail(f"{count} registers are expected, not {len(items)}")
    return items


def _half_split(b: Builder, operand: Operand) -> int:
    """The columns between the halves of .16x32bx2, where the record keeps them."""
    if not isinstance(operand, Immediate) or operand.kind != "int" or not 0 <= operand.bits < 512:
        b.fail(f"immHalfSplitoff is an integer constant of 0..511 columns, not {operand}")
    return operand.bits << 32


def _load(b: Builder, m: Modifiers) -> None:
    reduction = m.take("red")
    shape, count, mods = _shape(b, m)
    type_name = "b32"
    if reduction:
        mods, type_name = _reduction(b, m, shape, count, mods)
    else:
        m.need("b32")
        if m.take("pack::16b"):
            mods |= MODS["tc_pack"]
    m.done()
    split = shape == "16x32bx2"
    operands = _operands(b, 2 + reduction + split)
    unit, offset = _tmem(b, operands[1 + reduction])
    immediate = offset & 0xFFFF_FFFF
    if split:
        immediate |= _half_split(b, operands[-1])
    registers = _registers(b, operands[0], count)
    dst = [b.dst(x, "b32") for x in registers]
    if reduction:
        if not all(isinstance(x, Register) for x in (*registers, operands[1])):
            b.fail("tcgen05.ld.red needs every destination register")
        dst.append(b.dst(operands[1], "b32"))
    b.emit("tmem_ld", type_name, dst=dst, src=[unit], mods=mods, immediate=immediate, aligned=True)


def _reduction(b: Builder, m: Modifiers, shape: str, count: int, mods: int) -> tuple[int, str]:
    """(modifier bits, type) of tcgen05.ld.red."""
    if shape not in ("32x32b", "16x32bx2") or count < 2:
        b.fail("tcgen05.ld.red takes .32x32b or .16x32bx2 of at least .x2")
    mods |= m.choose({"min": 1, "max": 2}) << MODS["tc_reduce_shift"]
    type_name = m.type(("f32", "u32", "s32"))
    if type_name == "f32":
        mods |= MODS["tc_reduce_abs"] if m.take("abs") else 0
        mods |= MODS["tc_reduce_nan"] if m.take("NaN") else 0
    return mods, type_name


def _store(b: Builder, m: Modifiers) -> None:
    shape, count, mods = _shape(b, m)
    m.need("b32")
    if m.take("unpack::16b"):
        mods |= MODS["tc_pack"]
    m.done()
    split = shape == "16x32bx2"
    operands = _operands(b, 2 + split)
    unit, offset = _tmem(b, operands[0])
    immediate = offset & 0xFFFF_FFFF
    if split:
        immediate |= _half_split(b, operands[1])
    src = [unit, *(b.src(x, "b32") for x in _registers(b, operands[-1], count))]
    b.emit("tmem_st", "b32", src=src, mods=mods, immediate=immediate, aligned=True)


# mma


def _mma(b: Builder, m: Modifiers) -> None:
    ws = m.take("ws")
    sparse = m.take("sp")
    pair = _pair(m)
    if ws and pair:
        b.fail("tcgen05.mma.ws has cta_group::1 only")
    kind = m.choose({f"kind::{name}": name for name in _KINDS})
    scales = _scales(b, m, kind)
    if ws and scales:
        b.fail(f"tcgen05.mma.ws has no kind::{kind}")
    shifted = not ws and not scales and m.take("ashift")
    _collector(b, m, ws, shifted)
    m.done()
    operands = list(_operands(b, 5 + sparse, 7 + sparse))
    metadata = [_tmem_value(b, operands.pop(3))] if sparse else []
    d, a, desc_b, idesc, *rest = operands
    from_tmem = isinstance(a, Address)
    if shifted and not from_tmem:
        b.fail(".ashift shifts an A in tensor memory")
    mods = _KINDS[kind] << MODS["tc_kind_shift"] | scales << MODS["tc_scales_shift"] | pair
    mods |= (MODS["tc_ws"] if ws else 0) | (MODS["tc_a_shift"] if shifted else 0)
    mods |= (MODS["tc_a_tmem"] if from_tmem else 0) | (MODS["tc_sparse"] if sparse else 0)
    src = [
        _tmem_value(b, d),
        _tmem_value(b, a) if from_tmem else b.src(a, "b64"),
        b.src(desc_b, "b64"),
        b.src(idesc, "b32"),
    ]
    if scales:
        enable, *extra = _scaled_operands(b, rest)
    elif ws:
        enable, *extra = _ws_operands(b, rest)
        mods |= MODS["tc_zero_mask"] if extra else 0
    else:
        (enable, *extra), bits = _plain_operands(b, rest, kind, 8 if pair else 4)
        mods |= bits
    b.emit("tc_mma", src=[*src, enable, *metadata, *extra], mods=mods)


def _scales(b: Builder, m: Modifiers, kind: str) -> int:
    """Scales a row, 0 without block scaling."""
    sizes = _SCALES.get(kind)
    if sizes is None:
        return 0
    m.need("block_scale")
    size = _one_of(m, _SCALE_SIZES)
    if size not in sizes:
        b.fail(f"kind::{kind} {f'does not go with .{size}' if size else 'needs its scale vector size'}")
    return sizes[size]


def _collector(b: Builder, m: Modifiers, ws: bool, shifted: bool) -> None:
    """Collector hints permit a reuse that never changes a result: checked, with no effect."""
    for buffer in ("b0", "b1", "b2", "b3") if ws else ("a",):
        use = _one_of(m, tuple(f"collector::{buffer}::{op}" for op in _COLLECTOR_OPS))
        if use is None:
            continue
        if shifted and use.endswith(("::use", "::fill")):
            b.fail(f".{use} does not go with .ashift")
        return


def _scaled_operands(b: Builder, rest: list[Operand]) -> list[int]:
    if len(rest) != 3:
        b.fail("7 operands are expected: D, A, B, idesc, scale A, scale B, enable-input-d")
    scale_a, scale_b, enable = rest
    return [_positive(b, enable), _tmem_value(b, scale_a), _tmem_value(b, scale_b)]


def _ws_operands(b: Builder, rest: list[Operand]) -> list[int]:
    if len(rest) > 2:
        b.fail("5 or 6 operands are expected: D, A, B, idesc, enable-input-d, zero-column mask")
    return [_positive(b, rest[0]), *(b.src(x, "b64") for x in rest[1:])]


def _plain_operands(b: Builder, rest: list[Operand], kind: str, words: int) -> tuple[list[int], int]:
    """Units and modifier bits of {disable-output-lane}, enable-input-d, scale-input-d."""
    mods = 0
    disable: list[int] = []
    if isinstance(rest[0], Vector):
        disable = [b.src(x, "b32") for x in _registers(b, rest.pop(0), words)]
        mods |= MODS["tc_disable"]
    if not 1 <= len(rest) <= 2:
        b.fail("enable-input-d, and at most scale-input-d behind it, are expected")
    if len(rest) == 2:
        scale = rest[1]
        if kind not in ("f16", "tf32"):
            b.fail(f"kind::{kind} has no scale-input-d")
        if not isinstance(scale, Immediate) or scale.kind != "int" or not 0 <= scale.bits <= 15:
            b.fail(f"scale-input-d is a constant of 0..15, not {scale}")
        mods |= scale.bits << MODS["tc_input_scale_shift"]
    return [_positive(b, rest[0]), *disable], mods


def _positive(b: Builder, operand: Operand) -> int:
    """A predicate unit with no negation left: `!p` becomes a unit of its own."""
    if isinstance(operand, Negated):
        unit = b.new_unit(1)
        b.emit("not", "pred", dst=[unit], src=[b.src(operand.register, "pred")])
        return unit
    return b.src(operand, "pred")


# cp, shift, commit


def _copy(b: Builder, m: Modifiers) -> None:
    pair = _pair(m)
    shape = m.choose({name: name for name in _COPIES})
    multicast = _one_of(m, _MULTICASTS)
    codes = _COPIES[shape]
    if multicast not in codes:
        needs = " or ".join(f".{name}" for name in codes if name) or "no multicast"
        b.fail(f"tcgen05.cp.{shape} needs {needs}")
    unpack = 0
    if m.take("b8x16"):
        unpack = m.choose({"b6x16_p32": 1, "b4x16_p64": 2})
    m.done()
    address, descriptor = _operands(b, 2)
    mods = codes[multicast] << MODS["tc_shape_shift"] | unpack << MODS["tc_unpack_shift"] | pair
    b.emit("tc_cp", src=[_tmem_value(b, address), b.src(descriptor, "b64")], mods=mods)


def _shift(b: Builder, m: Modifiers) -> None:
    pair = _pair(m)
    m.need("down")
    m.done()
    (address,) = _operands(b, 1)
    b.emit("tc_shift", src=[_tmem_value(b, address)], mods=pair)


def _commit(b: Builder, m: Modifiers) -> None:
    mods = _pair(m)
    m.need("mbarrier::arrive::one")
    space = m.choose({"shared::cluster": "shared::cluster"}, "generic")
    multicast = m.take("multicast::cluster")
    m.need("b64")
    m.done()
    operands = _operands(b, 1 + multicast)
    unit, width, offset = b.address(operands[0], space)
    if offset:
        unit = b.address_value(operands[0], space, width)
    src = [unit]
    if multicast:
        src.append(b.src(operands[1], "b16"))
        mods |= MODS["tc_multicast"]
    b.emit("tc_commit", "b64", src=src, mods=mods, width_src=width)


_TCGEN05: dict[str, Callable[[Builder, Modifiers], None]] = {
    "ld": _load,
    "st": _store,
    "mma": _mma,
    "cp": _copy,
    "shift": _shift,
    "commit": _commit,
}

FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {"tcgen05": tcgen05}
