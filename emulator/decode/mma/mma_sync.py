"""mma.sync (PTX ISA 9.7.14.5) and mma.sp (9.7.14.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fmha.emulator._core import ELEMENT_TYPES, MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Immediate, Operand, Vector

FP8 = ("e4m3", "e5m2")
NARROW = (*FP8, "e3m2", "e2m3", "e2m1")


@dataclass(frozen=True, slots=True)
class _Kind:
    """Instructions that multiply one family of types: bits of an element, shapes (M, K), types of C and D."""

    a: tuple[str, ...]
    bits: int
    shapes: tuple[tuple[int, int], ...]
    results: tuple[str, ...]
    mixed: bool = False  # A and B may be of different types of the family
    sparse: tuple[tuple[int, int], ...] = ()  # shapes with a sparse A


# The shapes with N = 8 (PTX ISA 9.7.14.5 and 9.7.14.6, tables of supported shapes).
_KINDS = (
    _Kind(("f16",), 16, ((16, 8), (16, 16)), ("f16", "f32"), sparse=((16, 16), (16, 32))),
    _Kind(("bf16",), 16, ((16, 8), (16, 16)), ("f32",), sparse=((16, 16), (16, 32))),
    _Kind(("tf32",), 32, ((16, 4), (16, 8)), ("f32",), sparse=((16, 8), (16, 16))),
    _Kind(("f64",), 64, ((8, 4), (16, 4), (16, 8), (16, 16)), ("f64",)),
    _Kind(FP8, 8, ((16, 16), (16, 32)), ("f16", "f32"), mixed=True, sparse=((16, 64),)),
    _Kind(("s8", "u8"), 8, ((8, 16), (16, 16), (16, 32)), ("s32",), mixed=True, sparse=((16, 32), (16, 64))),
    _Kind(("s4", "u4"), 4, ((8, 32), (16, 32), (16, 64)), ("s32",), mixed=True, sparse=((16, 64), (16, 128))),
    _Kind(("b1",), 1, ((8, 128), (16, 128), (16, 256)), ("s32",)),
)
_F8F6F4 = _Kind(NARROW, 8, ((16, 32),), ("f16", "f32"), mixed=True, sparse=((16, 64),))
# With scales (PTX ISA 9.7.14.3): the types of elements, their bits, (M, K), and of a number of blocks of K the types
# that scales may have; the first number is the default where there is one.
_MXF8F6F4 = _Kind(NARROW, 8, ((16, 32),), ("f32",), mixed=True, sparse=((16, 64),))
_MXF4 = _Kind(("e2m1",), 4, ((16, 64),), ("f32",), sparse=((16, 128),))
_SCALED: dict[str, tuple[_Kind, int, dict[int, tuple[str, ...]]]] = {
    "kind::mxf8f6f4": (_MXF8F6F4, 1, {1: ("ue8m0",)}),
    "kind::mxf4": (_MXF4, 2, {2: ("ue8m0",)}),
    "kind::mxf4nvf4": (_MXF4, 0, {2: ("ue8m0",), 4: ("ue8m0", "ue4m3")}),
}
_RESULTS = dict.fromkeys(name for kind in _KINDS for name in kind.results)
_MULTIPLIED = dict.fromkeys(name for kind in _KINDS for name in kind.a)
_CHUNK = {32: 2, 16: 4, 8: 4, 4: 8}  # elements of K that four bits of metadata describe, by the bits of an element
_SHAPES = {f"m{m}n8k{k}": (m, k) for kind in _KINDS for m, k in (*kind.shapes, *kind.sparse)}


def take_types(m: Modifiers, *allowed: Iterable[str]) -> list[str]:
    """The type modifiers in order, each one of some."""
    return [m.choose({name: name for name in names}) for names in allowed]


def type_bits(d: str, a: str, b_type: str, c: str) -> int:
    """The element types of a product's four matrices, as a record has them."""
    return (
        ELEMENT_TYPES[d] << MODS["mma_d_shift"]
        | ELEMENT_TYPES[a] << MODS["mma_a_shift"]
        | ELEMENT_TYPES[b_type] << MODS["mma_b_shift"]
        | ELEMENT_TYPES[c] << MODS["mma_c_shift"]
    )


def vector(b: Builder, operand: Operand, count: int, what: str) -> tuple[Operand, ...]:
    """The registers of a fragment. PtxError for another number of them."""
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        b.fail(f"{what} has {count} registers, not {len(items)}")
    return items


def _kind_of(b: Builder, narrow: bool, a: str, b_type: str) -> _Kind:
    kinds = (_F8F6F4,) if narrow else _KINDS
    found = next((x for x in kinds if a in x.a and (b_type == a or (x.mixed and b_type in x.a))), None)
    if found is None:
        b.fail(f"mma of .{a} by .{b_type} does not exist")
    return found


def _check_results(b: Builder, kind: _Kind, d: str, c: str) -> None:
    if d not in kind.results or c not in kind.results:
        b.fail(f"mma of .{kind.a[0]} into .{d} from .{c} does not exist")
    if d != c:
        b.fail("C and D are of the same type in these shapes")


def mma(b: Builder, m: Modifiers) -> None:
    """mma.sync and mma.sp, of every shape that is modelled."""
    if m.take("block_scale"):
        _scaled(b, m)
        return
    sparse = m.take("sp", "sp::ordered_metadata")
    m.need("sync", "aligned")
    shape = m.choose(_SHAPES)
    if shape == (8, 4) and not m.has("f64"):
        b.fail("mma.m8n8k4 of .f16 (the form of sm_70) is not modelled")
    m.need("row", "col")
    narrow = m.take("kind::f8f6f4")
    if narrow and not b.module.target.startswith("sm_12"):
        b.fail(f"mma of kind::f8f6f4 needs target sm_120a, the module is for {b.module.target}")
    saturate = m.take("satfinite")
    results, multiplied = (_F8F6F4.results, NARROW) if narrow else (_RESULTS, _MULTIPLIED)
    d, a, b_type, c = take_types(m, results, multiplied, multiplied, results)
    operation = m.choose({"xor": 0, "and": MODS["mma_and"]}, -1)
    if operation >= 0:
        m.need("popc")
    m.done()
    kind = _kind_of(b, narrow, a, b_type)
    if shape not in (kind.sparse if sparse else kind.shapes):
        b.fail(f"mma{'.sp' if sparse else ''} of .{a} by .{b_type} has no such shape")
    _check_results(b, kind, d, c)
    if (saturate and kind.results != ("s32",)) or (saturate and a == "b1"):
        b.fail(".satfinite needs integers")
    if (operation >= 0) != (a == "b1"):
        b.fail(".xor.popc and .and.popc belong to .b1")
    mods = type_bits(d, a, b_type, c) | (MODS["mma_sat"] if saturate else 0) | max(operation, 0)
    mods |= MODS["mma_m8"] if shape[0] == 8 else 0
    _emit_mma(b, kind, shape, d, mods, sparse)


def _scaled(b: Builder, m: Modifiers) -> None:
    """mma and mma.sp of blocks with scales, which sm_120a has."""
    if not b.module.target.startswith("sm_12"):
        b.fail(
            f"block-scaled mma.sync needs target sm_120a, the module is for {b.module.target}"
            + (", whose block-scaled products are tcgen05.mma" if b.module.target.startswith("sm_10") else "")
        )
    sparse = m.take("sp", "sp::ordered_metadata")
    m.need("sync", "aligned")
    shape = m.choose(_SHAPES)
    m.need("row", "col")
    kind, count, allowed = m.choose(_SCALED)
    count = m.choose({f"scale_vec::{n}X": n for n in (1, 2, 4)}, count)
    d, a, b_type, c = take_types(m, kind.results, kind.a, kind.a, kind.results)
    scale_type = m.choose({name: name for name in ("ue8m0", "ue4m3")})
    m.done()
    if not count:
        b.fail("kind::mxf4nvf4 needs its .scale_vec")
    if scale_type not in allowed.get(count, ()):
        b.fail(f"scales of .{scale_type}, {count} a row, do not go with this kind")
    if a not in kind.a or b_type not in kind.a or shape not in (kind.sparse if sparse else kind.shapes):
        b.fail(f"block-scaled mma{'.sp' if sparse else ''} of .{a} by .{b_type} has no such shape")
    _check_results(b, kind, d, c)
    mods = type_bits(d, a, b_type, c) | count.bit_length() << MODS["mma_scales_shift"]
    mods |= MODS["mma_scales_e4m3"] if scale_type == "ue4m3" else 0
    mods |= MODS["mma_packed"] if kind.bits == 4 else 0
    _emit_mma(b, kind, shape, d, mods, sparse, scaled=True)


def _scale_operands(b: Builder, operands: tuple[Operand, ...]) -> list[int]:
    """Units of the scales' words and of {byte, thread}, for A and for B."""
    units = []
    for words, selectors in (operands[:2], operands[2:]):
        (word,) = vector(b, words, 1, "a scale operand")
        units += [b.src(word, "b32"), *(b.src(x, "b16") for x in vector(b, selectors, 2, "a scale's selector"))]
    return units


def _emit_mma(
    b: Builder, kind: _Kind, shape: tuple[int, int], d: str, mods: int, sparse: bool, scaled: bool = False
) -> None:
    rows, k = shape
    expected = (6 if sparse else 4) + (4 if scaled else 0)
    operands = b.instruction.operands
    if len(operands) != expected:
        b.fail(f"{expected} operands are expected, not {len(operands)}")
    register = max(kind.bits, 32)  # bits of a register of A and B
    stored = k // 2 if sparse else k  # of A's elements in a row
    count_a, count_b = rows * stored * kind.bits // register // 32, k * 8 * kind.bits // register // 32
    count_d = rows * 8 // 32 // (2 if d == "f16" else 1)
    ab, cd = ("f64", "f64") if d == "f64" else ("b32", "b32")
    dst = [b.dst(x, cd) for x in vector(b, operands[0], count_d, "D")]
    src = [b.src(x, ab) for x in vector(b, operands[1], count_a, "A")]
    src += [b.src(x, ab) for x in vector(b, operands[2], count_b, "B")]
    src += [b.src(x, d if d in ("f32", "f64", "s32") else cd) for x in vector(b, operands[3], count_d, "C")]
    if scaled:
        src += _scale_operands(b, operands[-4:])
    if sparse:
        (metadata,) = vector(b, operands[4], 1, "the metadata")
        src.append(b.src(metadata, "b32"))
        threads = k // _CHUNK[kind.bits] // 4  # of four that hold metadata: four chunks of two rows each
        mods |= MODS["mma_sparse"] | selector(b, operands[5], 4 // threads)
    b.emit("mma_sync", cd, dst=dst, src=src, mods=mods, immediate=k, aligned=True)


def selector(b: Builder, operand: Operand, count: int) -> int:
    """The sparsity selector: which of the four threads of a group hold metadata."""
    shift = MODS["mma_selector_shift"]
    return constant(b, operand, {value: value << shift for value in range(count)}, "the sparsity selector")


def constant(b: Builder, operand: Operand, allowed: dict[int, int], what: str) -> int:
    """What a constant operand stands for. PtxError for one that is not allowed."""
    if not isinstance(operand, Immediate) or operand.bits not in allowed:
        b.fail(f"{what} is one of the constants {', '.join(map(str, allowed))}")
    return allowed[operand.bits]


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {"mma": mma}
