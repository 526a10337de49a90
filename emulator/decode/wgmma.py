"""wgmma (PTX ISA 9.7.15), dense and sparse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.mma.mma_sync import FP8, constant, selector, take_types, type_bits, vector
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Immediate, Negated, Operand, Vector


@dataclass(frozen=True, slots=True)
class _GroupKind:
    """One family of wgmma.mma_async: K, which a sparse A doubles, types of D, which constant operands there are."""

    a: tuple[str, ...]
    k: int
    results: tuple[str, ...]
    scales: bool = True
    transposes: bool = False


_GROUP_KINDS = (
    _GroupKind(("f16",), 16, ("f16", "f32"), transposes=True),
    _GroupKind(("bf16",), 16, ("f32",), transposes=True),
    _GroupKind(("tf32",), 8, ("f32",)),
    _GroupKind(FP8, 32, ("f16", "f32")),
    _GroupKind(("s8", "u8"), 32, ("s32",), scales=False),
    _GroupKind(("b1",), 256, ("s32",), scales=False),
)
_GROUP_SHAPES = {f"m64n{n}k{k}": (n, k) for n in range(8, 257, 8) for k in (8, 16, 32, 64, 256)}


def wgmma(b: Builder, m: Modifiers) -> None:
    """wgmma.*, of sm_90a alone."""
    if b.module.target != "sm_90a":
        b.fail(f"wgmma needs target sm_90a, the module is for {b.module.target}")
    action = m.choose({name: name for name in ("mma_async", "fence", "commit_group", "wait_group")})
    sparse = action == "mma_async" and m.take("sp")
    m.need("sync", "aligned")
    if action == "mma_async":
        _mma_async(b, m, sparse)
        return
    m.done()
    operands = b.instruction.operands
    if len(operands) != (action == "wait_group"):
        b.fail("wrong number of operands")
    count = 0
    if operands:
        if not isinstance(operands[0], Immediate) or operands[0].bits < 0:
            b.fail("the number of groups is a constant")
        count = operands[0].bits
    op = {"fence": "wgmma_fence", "commit_group": "wgmma_commit", "wait_group": "wgmma_wait"}[action]
    b.emit(op, immediate=count, aligned=True)


def _mma_async(b: Builder, m: Modifiers, sparse: bool) -> None:
    n, k = m.choose(_GROUP_SHAPES)
    saturate = m.take("satfinite")
    multiplied = [name for kind in _GROUP_KINDS for name in kind.a]
    d, a, b_type = take_types(m, ("f16", "f32", "s32"), multiplied, multiplied)
    bits = a == b_type == "b1"
    if bits:
        m.need("and", "popc")
    m.done()
    kind = next((x for x in _GROUP_KINDS if a in x.a and b_type in x.a), None)
    if kind is None or kind.k * (2 if sparse else 1) != k or d not in kind.results:
        which = "sparse wgmma" if sparse else "wgmma"
        b.fail(f"{which} of .{a} by .{b_type} into .{d} with K = {k} does not exist or is not modelled")
    if (d == "s32" and n > 32 and n % 16) or (d == "s32" and n == 40):
        b.fail(f"wgmma of integers has no N = {n}")
    if saturate and (d != "s32" or bits):
        b.fail(".satfinite needs integers")
    # Bits lie in memory and in registers as bytes do, eight in each.
    types = type_bits(d, "u8", "u8", d) | MODS["mma_and"] if bits else type_bits(d, a, b_type, d)
    mods = types | (MODS["mma_sat"] if saturate else 0)
    _emit_wgmma(b, kind, n, d, mods, sparse)


def _emit_wgmma(b: Builder, kind: _GroupKind, n: int, d: str, mods: int, sparse: bool) -> None:
    operands = list(b.instruction.operands)
    registers = len(operands) > 1 and isinstance(operands[1], Vector)
    expected = 4 + 2 * sparse + 2 * kind.scales + (2 - registers) * kind.transposes
    if len(operands) != expected:
        b.fail(f"{expected} operands are expected, not {len(operands)}")
    metadata = []
    if sparse:
        metadata = [b.src(operands[3], "b32")]
        # Metadata is in two of four threads, of 8-bit types in all four.
        mods |= MODS["mma_sparse"] | selector(b, operands[4], 1 if kind.k == 32 else 2)
        del operands[3:5]
    results, first, second, scale, *constants = operands
    if kind.scales:
        mods |= constant(b, constants[0], {1: 0, -1: MODS["wgmma_negate_a"]}, "imm-scale-a")
        mods |= constant(b, constants[1], {1: 0, -1: MODS["wgmma_negate_b"]}, "imm-scale-b")
    if kind.transposes:
        mods |= constant(b, constants[-1], {0: 0, 1: MODS["wgmma_trans_b"]}, "imm-trans-b")
        if not registers:
            mods |= constant(b, constants[2], {0: 0, 1: MODS["wgmma_trans_a"]}, "imm-trans-a")
    dst = [b.dst(x, "b32") for x in vector(b, results, n // (4 if d == "f16" else 2), "D")]
    if len(set(dst)) != len(dst) or -1 in dst:
        b.fail("the registers of D are distinct")
    if registers:
        mods |= MODS["wgmma_a_registers"]
        src = [b.src(x, "b32") for x in vector(b, first, 4, "A")]
    else:
        src = [b.src(first, "b64")]
    src += [b.src(second, "b64"), _scale(b, scale), *metadata]
    b.emit("wgmma", "b32", dst=dst, src=src, mods=mods, immediate=n, aligned=True)


def _scale(b: Builder, operand: Operand) -> int:
    """scale-d as a predicate unit: `!p` becomes a unit of its own."""
    if isinstance(operand, Negated):
        unit = b.new_unit(1)
        b.emit("not", "pred", dst=[unit], src=[b.src(operand.register, "pred")])
        return unit
    return b.src(operand, "pred")


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {"wgmma": wgmma}
