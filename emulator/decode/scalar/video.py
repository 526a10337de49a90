"""Video instructions (PTX ISA 9.7.18): of whole words and their parts, and of two halves or four bytes at once.

They become records of the usual kind. A value is a word of 64 bits that holds what the ISA calls .s33 or .s34. On
current GPUs they are what ptxas makes of them. Where its SASS for sm_90a is not what the ISA's pseudo-code says, .sat
follows the SASS, as an H100 does; a second operation .min or .max and some forms of vmad are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Operand, Selected

_WORDS = ("u32", "s32")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")  # as the core numbers them
_SCALAR = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset")
_LANE_OPS = ("add", "sub", "avrg", "absdiff", "min", "max", "set")
_SIGN_OF_34 = 64 - 34


def _new(b: Builder, op: str, *src: int, type_name: str = "s64", mods: int = 0) -> int:
    """A new unit with the result of a record."""
    unit = b.new_unit(64 if type_name.endswith("64") else 32)
    b.emit(op, type_name, dst=[unit], src=list(src), mods=mods)
    return unit


def _wide(b: Builder, unit: int, type_name: str) -> int:
    wide = b.new_unit(64)
    b.emit("cvt", type_name.replace("32", "64"), type2=type_name, dst=[wide], src=[unit], width_dst=64, width_src=32)
    return wide


def _low(b: Builder, unit: int) -> int:
    low = b.new_unit(32)
    b.emit("cvt", "u32", type2="u64", dst=[low], src=[unit], width_dst=32, width_src=64)
    return low


def _split(b: Builder, operand: Operand) -> tuple[Operand, str]:
    """A source and the part of it that is taken."""
    if not isinstance(operand, Selected):
        return operand, ""
    if operand.minus:
        b.fail(f"{operand}: vmad alone negates its operands")
    return operand.register, operand.part


def _place(b: Builder, part: str) -> tuple[int, int]:
    """(lowest bit, bits) of .b0 to .b3, .h0, .h1."""
    width = 8 if part[0] == "b" else 16
    at = int(part[1:]) * width
    if len(part) != 2 or at >= 32:
        b.fail(f".{part} is no part of a word: .b0, .b1, .b2, .b3, .h0, .h1")
    return at, width


def _part(b: Builder, operand: Operand, type_name: str) -> int:
    """The whole source or a part of it, extended to 64 bits."""
    operand, part = _split(b, operand)
    unit = b.src(operand, type_name)
    if part:
        at, width = _place(b, part)
        unit = _new(b, "bfe", unit, b.number(at, 32), b.number(width, 32), type_name=type_name)
    return _wide(b, unit, type_name)


def _clamped(b: Builder, unit: int, signed: bool, width: int, type_name: str = "s64") -> int:
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    size = int(type_name[1:])
    least = _new(b, "max", unit, b.number(low, size), type_name=type_name)
    return _new(b, "min", least, b.number(high, size), type_name=type_name)


def _saturated(b: Builder, unit: int, to: str, width: int, shifts: bool) -> int:
    """.sat of an instruction of whole words: what ptxas makes of it, in `width` low bits of the destination.

    The ISA has one rule: the result goes to the nearest value of the destination's type and part. Silicon has four.
    """
    if shifts:
        # To the whole word's range, whatever part is written; the part takes the word's low bits.
        return _clamped(b, unit, to == "s32", 32)
    if width < 32:
        # As an unsigned number: a negative result becomes the part's maximum, never its minimum.
        return _new(b, "min", unit, b.number((1 << width - (to == "s32")) - 1, 64), type_name="u64")
    if to == "u32":
        # From below only: a sum over 32 bits keeps its low word.
        return _new(b, "max", unit, b.number(0, 64))
    return _clamped(b, unit, True, 32)


def _truth(b: Builder, comparison: int, x: int, y: int, type_name: str) -> int:
    """1 or 0, in 32 bits."""
    chosen, result = b.new_unit(1), b.new_unit(32)
    b.emit("setp", type_name, dst=[chosen], src=[x, y], mods=comparison << MODS["cmp_shift"])
    b.emit("selp", "b32", dst=[result], src=[b.number(1, 32), b.number(0, 32), chosen])
    return result


def _result(b: Builder, op: str, x: int, y: int, type_name: str) -> int:
    """Of the operations that words and lanes have in common; `type_name` holds their results."""
    if op in ("add", "sub", "min", "max"):
        return _new(b, op, x, y, type_name=type_name)
    if op == "absdiff":
        return _new(b, "abs", _new(b, "sub", x, y, type_name=type_name), type_name=type_name)
    # vavrg: half the sum, rounded up where that is not negative.
    total = _new(b, "add", x, y, type_name=type_name)
    up = _truth(b, _COMPARISONS.index("ge"), total, b.number(0, 32), type_name)
    return _new(b, "shr", _new(b, "add", total, up, type_name=type_name), b.number(1, 32), type_name=type_name)


def _shifted(b: Builder, op: str, x: int, count: int, wraps: bool) -> int:
    """vshl and vshr: of 34 bits, as far as saturation sees them."""
    n = _low(b, count)
    if wraps:
        n = _new(b, "and", n, b.number(31, 32), type_name="b32")
    else:
        n = _new(b, "min", n, b.number(32, 32), type_name="u32")
    if op == "vshr":
        return _new(b, "shr", x, n)
    up = _new(b, "shl", _new(b, "shl", x, n, type_name="b64"), b.number(_SIGN_OF_34, 32), type_name="b64")
    return _new(b, "shr", up, b.number(_SIGN_OF_34, 32))


def scalar(b: Builder, m: Modifiers) -> None:
    """vadd, vsub, vabsdiff, vmin, vmax, vshl, vshr, vset (9.7.18.1.1, .2, .4)."""
    opcode = b.instruction.opcode
    compares, shifts = opcode == "vset", opcode in ("vshl", "vshr")
    to = "u32" if compares else m.type(_WORDS)
    first, second = m.type(_WORDS), m.type(_WORDS)
    if shifts and second != "u32":
        b.fail("the type of a shift's count is .u32")
    comparison = m.choose({name: n for n, name in enumerate(_COMPARISONS)}) if compares else 0
    wraps = shifts and m.choose({"wrap": True, "clamp": False})
    saturates = not compares and m.take("sat")
    if m.take("min", "max"):
        b.fail(f".min and .max after {opcode} are not modelled: what ptxas makes of them is not what PTX says")
    added = m.take("add")
    m.done()
    d, x, y, *rest = b.operands(3, 4)
    d, merged = _split(b, d)
    if added and merged:
        b.fail("a second operation and a part of the destination exclude each other")
    if bool(rest) != (added or bool(merged)):
        b.fail("the third source goes with .add or a part of the destination")
    at, width = _place(b, merged) if merged else (0, 32)
    u, v = _part(b, x, first), _part(b, y, second)
    if compares:
        result = _truth(b, comparison, u, v, "s64")
    else:
        wide = _shifted(b, opcode, u, v, wraps) if shifts else _result(b, opcode[1:], u, v, "s64")
        if saturates:
            wide = _saturated(b, wide, to, width, shifts)
        result = _low(b, wide)
    if added:
        result = _new(b, "add", result, b.src(rest[0], to), type_name="u32")
    elif merged:
        result = _new(b, "bfi", result, b.src(rest[0], to), b.number(at, 32), b.number(width, 32), type_name="b32")
    b.emit("mov", "b32", dst=[b.dst(d, to)], src=[result])


def multiply_add(b: Builder, m: Modifiers) -> None:
    """vmad (9.7.18.1.3)."""
    types = m.type(_WORDS), m.type(_WORDS), m.type(_WORDS)
    to, first, second = types
    plus_one, saturates = m.take("po"), m.take("sat")
    scale = m.choose({"shr7": 7, "shr15": 15}, 0)
    m.done()
    d, *sources = b.operands(4)
    minus = [isinstance(x, Selected) and x.minus for x in sources]
    a, y, c = (Selected(x.register, x.part) if isinstance(x, Selected) else x for x in sources)
    c, part = _split(b, c)
    if part:
        b.fail("vmad takes the whole of its third source")
    negated = minus[0] != minus[1]
    if plus_one and any(minus):
        b.fail(".po does not go with negated operands")
    if negated and minus[2]:
        b.fail("vmad negates its product or its third source, not both")
    signed = "s32" in (first, second) or negated or minus[2]
    whole = [t == "u32" and not _split(b, x)[1] for x, t in ((a, first), (y, second))]
    if (saturates or scale) and (any(whole) or not signed or to != "s32"):
        b.fail(
            "vmad with .sat, .shr7 or .shr15 of whole .u32 words or with an unsigned result is not modelled: what ptxas"
            " makes of it is not what PTX says"
        )
    product = _new(b, "mul_lo", _part(b, a, first), _part(b, y, second))
    addend = _wide(b, b.src(c, "s32"), "s32")
    total = _new(b, "sub", addend, product) if negated else _new(b, "sub" if minus[2] else "add", product, addend)
    if plus_one:
        total = _new(b, "add", total, b.number(1, 64))
    if scale:
        total = _new(b, "shr", total, b.number(scale, 32))
    if saturates:
        total = _clamped(b, total, True, 32)
    b.emit("mov", "b32", dst=[b.dst(d, to)], src=[_low(b, total)])


def _chosen(b: Builder, part: str, lanes: int, default: str) -> list[int]:
    """The lanes that a selector such as .h32 or .b7654 names, that of the lowest lane first."""
    digits = [int(x) for x in reversed(part[1:] if part else default)]
    if len(digits) != lanes or max(digits) >= 2 * lanes or (part and part[0] != ("h" if lanes == 2 else "b")):
        b.fail(f".{part} does not select {lanes} of {2 * lanes} lanes")
    return digits


def _mask(b: Builder, part: str, lanes: int) -> set[int]:
    if not part:
        return set(range(lanes))
    digits = [int(x) for x in part[1:]]
    if part[0] != ("h" if lanes == 2 else "b") or digits != sorted(set(digits), reverse=True) or digits[0] >= lanes:
        b.fail(f".{part} is no mask of {lanes} lanes")
    return set(digits)


def lanes_at_once(b: Builder, m: Modifiers) -> None:
    """vadd2, vadd4, ... (9.7.18.2)."""
    opcode = b.instruction.opcode
    op, lanes = opcode[1:-1], int(opcode[-1])
    width = 32 // lanes
    to = "u32" if op == "set" else m.type(_WORDS)
    first, second = m.type(_WORDS), m.type(_WORDS)
    comparison = m.choose({name: n for n, name in enumerate(_COMPARISONS)}) if op == "set" else 0
    saturates, added = op != "set" and m.take("sat"), m.take("add")
    m.done()
    if saturates and added:
        b.fail(".sat does not go with .add")
    d, x, y, rest = b.operands(4)
    (d, mask), (x, of_first), (y, of_second) = _split(b, d), _split(b, x), _split(b, y)
    sources = [b.src(source, t) for source, t in ((x, first), (y, second))]
    made = b.src(rest, to)
    selected = (
        _chosen(b, of_first, lanes, "".join(map(str, reversed(range(lanes))))),
        _chosen(b, of_second, lanes, "".join(map(str, reversed(range(lanes, 2 * lanes))))),
    )
    within = _mask(b, mask, lanes)
    size = b.number(width, 32)
    for lane in sorted(within):
        u, v = (
            _new(b, "bfe", sources[from_[lane] // lanes], b.number(from_[lane] % lanes * width, 32), size, type_name=t)
            for from_, t in zip(selected, (first, second), strict=True)
        )
        result = _truth(b, comparison, u, v, "s32") if op == "set" else _result(b, op, u, v, "s32")
        if saturates:
            result = _clamped(b, result, to == "s32", width, "s32")
        if added:
            made = _new(b, "add", made, result, type_name="u32")
        else:
            made = _new(b, "bfi", result, made, b.number(lane * width, 32), size, type_name="b32")
    b.emit("mov", "b32", dst=[b.dst(d, to)], src=[made])


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    **dict.fromkeys(_SCALAR, scalar),
    "vmad": multiply_add,
    **dict.fromkeys((f"v{op}{lanes}" for op in _LANE_OPS for lanes in (2, 4)), lanes_at_once),
}
