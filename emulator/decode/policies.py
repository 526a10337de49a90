"""Cache policies (PTX ISA 9.7.9.18, createpolicy): the bits that ptxas computes, and who may be one.

ptxas 13.0 makes a policy by integer instructions, the same for sm_80, sm_90a and sm_100a, so the value is known to the
bit. libcu++ (cuda/__annotated_ptr/access_property_encoding.h) names the fields:

    bits 63-61  hints of L1 and of sectors: none of createpolicy's
    bits 60-59  2: a fraction of the addresses; 3: a range of blocks; 0: no policy of its own
    bits 58-56  primary priority in two bits, secondary in one
    bits 55-52  of a fraction: sixteenths less one. Of a range: log2 of a block's size less 12
    bits 50-44  of a range: its first block; bits 43-37: how many blocks have the primary priority
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Immediate, Operand, Register, Vector

_FRACTION, _RANGE = 2 << 59, 3 << 59
_PRIMARY = {f"L2::evict_{name}": code << 57 for code, name in enumerate(("unchanged", "first", "last", "normal"))}
_SECONDARY = {"L2::evict_unchanged": 0, "L2::evict_first": 1 << 56}
_SIXTEENTHS = 0x417FD70A  # 15.99 as f32, by which ptxas multiplies a fraction before it cuts it off
_LEAST_BLOCK = 12  # log2 of the bytes


def _f32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def create_policy(b: Builder, m: Modifiers) -> None:
    """createpolicy: a cache policy, which changes no value."""
    if m.take("cvt"):
        m.need("L2", "b64")
        m.done()
        d, source = b.operands(2)
        b.emit("mov", "b64", dst=[b.dst(d, "b64")], src=[b.src(source, "b64")])
        return
    ranged = m.choose({"fractional": False, "range": True})
    if ranged:
        m.choose({"global": True}, True)
    priorities = m.choose(_PRIMARY) | m.choose(_SECONDARY, 0)
    m.need("b64")
    m.done()
    if ranged:
        _range(b, priorities)
    else:
        _fraction(b, _FRACTION | priorities)


def _fraction(b: Builder, policy: int) -> None:
    d, *given = b.operands(1, 2)
    target = b.dst(d, "b64")
    fraction = given[0] if given else Immediate(0x3F800000, "f32")
    if isinstance(fraction, Immediate):
        part = _f32(b.immediate_bits(fraction, "f32"))
        if not 0 < part <= 1:
            b.fail(f"a fraction is greater than 0 and at most 1, not {part:g}")
        scaled = _f32(struct.unpack("<I", struct.pack("<f", part * _f32(_SIXTEENTHS)))[0])
        b.emit("mov", "b64", dst=[target], src=[b.number(policy | int(scaled) << 52, 64)])
        return
    scaled_unit, count, wide = b.new_unit(32), b.new_unit(32), b.new_unit(64)
    b.emit("mul", "f32", dst=[scaled_unit], src=[b.src(fraction, "f32"), b.number(_SIXTEENTHS, 32)])
    rounding = MODS["rz"] | MODS["round_int"]
    b.emit("cvt", "u32", type2="f32", dst=[count], src=[scaled_unit], mods=rounding, width_dst=32, width_src=32)
    b.emit("and", "b32", dst=[count], src=[count, b.number(15, 32)])
    _field(b, wide, count, 52)
    b.emit("or", "b64", dst=[target], src=[wide, b.number(policy, 64)])


def _range(b: Builder, priorities: int) -> None:
    """Blocks are as large as it takes for 128 of them to hold all bytes, as far as MUFU's logarithm tells."""
    d, address, primary, total = b.operands(4)
    target = b.dst(d, "b64")
    begin = b.address_value(address, "global", 64)
    size, all_bytes = b.src(primary, "u32"), b.src(total, "u32")

    def word(op: str, type_name: str, *src: int, mods: int = 0) -> int:
        unit = b.new_unit(32)
        b.emit(op, type_name, dst=[unit], src=[*src], mods=mods)
        return unit

    def double(op: str, *src: int) -> int:
        unit = b.new_unit(64)
        b.emit(op, "u64", dst=[unit], src=[*src])
        return unit

    def number(value: int) -> int:
        return b.number(value, 32)

    real, log = b.new_unit(32), b.new_unit(32)
    b.emit("cvt", "f32", type2="u32", dst=[real], src=[all_bytes], width_dst=32, width_src=32)
    logarithm = word("lg2", "f32", real, mods=MODS["approx"] | MODS["ftz"])
    rounding = MODS["rp"] | MODS["round_int"]
    b.emit("cvt", "u32", type2="f32", dst=[log], src=[logarithm], mods=rounding, width_dst=32, width_src=32)
    block = word("max", "s32", word("sub", "s32", log, number(7)), number(_LEAST_BLOCK))
    # In 32 bits, so that primary sizes of nearly 4 GiB wrap, as ptxas computes it.
    span = word("sub", "u32", word("add", "u32", word("shl", "b32", number(1), block), size), number(1))
    wide = b.new_unit(64)
    b.emit("cvt", "u64", type2="u32", dst=[wide], src=[span], width_dst=64, width_src=32)
    first = double("shr", begin, block)
    last = double("shr", double("add", begin, wide), block)
    blocks = double("min", double("sub", last, first), b.number(127, 64))
    low = double("and", first, b.number(127, 64))
    exponent = b.new_unit(64)
    _field(b, exponent, word("sub", "u32", block, number(_LEAST_BLOCK)), 52)
    policy = double("or", exponent, b.number(_RANGE | priorities, 64))
    policy = double("or", policy, double("shl", low, number(44)))
    policy = double("or", policy, double("shl", blocks, number(37)))
    empty = b.new_unit(1)
    b.emit("setp", "u32", dst=[empty], src=[all_bytes, number(0)])  # equal
    b.emit("selp", "b64", dst=[target], src=[b.number(_RANGE, 64), policy, empty])


def _field(b: Builder, wide: int, word: int, at: int) -> None:
    b.emit("cvt", "u64", type2="u32", dst=[wide], src=[word], width_dst=64, width_src=32)
    b.emit("shl", "u64", dst=[wide], src=[wide, b.number(at, 32)])


def drop_policy(b: Builder, operands: tuple[Operand, ...], hinted: bool) -> tuple[Operand, ...]:
    """The operands without the cache policy, which changes no value. One that may be no policy is looked at when the
    instruction runs."""
    if not hinted:
        return operands
    if not operands:
        b.fail("a cache policy is expected, and there is no operand")
    policy = operands[-1]
    unit = b.src(policy, "b64")
    if not (policy.name in _policies(b) if isinstance(policy, Register) else _is_policy(policy)):
        b.emit("cache_policy", "b64", src=[unit])
    return operands[:-1]


def _is_policy(operand: Operand) -> bool:
    return isinstance(operand, Immediate) and operand.bits >> 60 == 1 and not operand.bits << 12 & (1 << 64) - 1


def _written(operand: Operand) -> Iterator[str]:
    if isinstance(operand, Register):
        yield operand.name
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from _written(item)


def _policies(b: Builder) -> frozenset[str]:
    """Registers to which nothing is written but policies: by createpolicy, or as constants."""
    if b.policies is None:
        made: set[str] = set()
        other: set[str] = set()
        for i in b.function.body:
            if not i.operands:
                continue
            policy = i.opcode == "createpolicy" and "cvt" not in i.modifiers
            policy = policy or (i.opcode == "mov" and len(i.operands) == 2 and _is_policy(i.operands[1]))
            (made if policy else other).update(_written(i.operands[0]))
        b.policies = frozenset(made - other)
    return b.policies


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {"createpolicy": create_policy}
