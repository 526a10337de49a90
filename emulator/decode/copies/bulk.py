"""Bulk asynchronous copies, with and without tensor maps (PTX ISA 9.7.9.25-27); tensormap.replace (9.7.9.28)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.decode.policies import drop_policy
from fmha.emulator.ptx import Address, Immediate, Operand, TensorAddress, Vector

_REDUCTIONS = {"add": 1, "min": 2, "max": 3, "inc": 4, "dec": 5, "and": 6, "or": 7, "xor": 8}
_REDUCED_TYPES = {
    "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
}
_SHARED = {"shared::cta": "shared::cta", "shared::cluster": "shared::cluster"}
_DIMS = {f"{n}d": n for n in range(1, 6)}
_IM2COL_W = ("im2col::w", "im2col::w::128")


def copy(b: Builder, m: Modifiers) -> None:
    """cp.async.bulk and cp.reduce.async.bulk, in all their forms."""
    reduce = m.take("reduce")
    m.need("async", "bulk")
    if reduce:
        _reduce(b, m)
    elif m.take("prefetch"):
        _prefetch(b, m)
    elif m.take("tensor"):
        _tensor(b, m)
    else:
        _bulk(b, m)


def _operands(b: Builder, m: Modifiers, count: int, behind: int = 0) -> tuple[Operand, ...]:
    """The operands without the cache policy, which is only a hint. `behind` of them come after it."""
    hint = m.take("L2::cache_hint")
    m.done()
    operands = b.instruction.operands
    if len(operands) != count + hint:
        b.fail(f"{count + hint} operands are expected")
    upto = len(operands) - behind
    return drop_policy(b, operands[:upto], hint) + operands[upto:]


@dataclass(frozen=True)
class _Mode:
    dims: int
    rows4: bool  # four rows are moved instead of a box
    im2col: bool

    @property
    def mods(self) -> int:
        wide = (MODS["tma_gather4"] if self.rows4 else 0) | (MODS["tma_im2col"] if self.im2col else 0)
        return self.dims << MODS["tma_dim_shift"] | wide


def _mode(b: Builder, m: Modifiers, four: str, im2col: str) -> _Mode:
    if m.take(*_IM2COL_W):
        b.fail("tensor copies along W alone (.im2col::w, .im2col::w::128) are not modelled: PTX draws where halos lie")
    mode = _Mode(m.choose(_DIMS), m.take(four), m.take(im2col))
    if mode.rows4 and mode.dims != 2:
        b.fail(f".{four} is two-dimensional")
    if mode.im2col and mode.dims < 3:
        b.fail(f".{im2col} has three to five dimensions")
    if not mode.rows4 and not mode.im2col:
        m.take("tile")
    return mode


def _offsets(b: Builder, operand: Operand, dims: int) -> list[int]:
    """Units of the im2col offsets, W first (PTX ISA 9.7.9.25.5.2)."""
    if not isinstance(operand, Vector) or len(operand.items) != dims - 2:
        b.fail(f"{dims - 2} im2col offsets are expected")
    return [b.src(x, "b16") for x in operand.items]


def _tensor_operand(b: Builder, operand: Operand, mode: _Mode) -> tuple[int, list[int]]:
    """Units of the map's address and of the coordinates."""
    count = 5 if mode.rows4 else mode.dims
    if not isinstance(operand, TensorAddress) or len(operand.coordinates) != count:
        b.fail(f"a tensor map and {count} coordinates are expected")
    return b.address_value(operand.descriptor, "generic", 64), [b.src(c, "s32") for c in operand.coordinates]


def _tensor(b: Builder, m: Modifiers) -> None:
    # The first space named is the destination; a store has .global there.
    spaces = m.those("global", *_SHARED)
    if spaces and spaces[0] == "global":
        _tensor_store(b, m, 0)
        return
    mode = _mode(b, m, "tile::gather4", "im2col")
    space = m.choose(_SHARED)
    m.need("global", "mbarrier::complete_tx::bytes")
    multicast = m.take("multicast::cluster")
    if multicast and space != "shared::cluster":
        b.fail("a multicast goes to .shared::cluster")
    pair = m.choose({"cta_group::1": False, "cta_group::2": True}, False)
    destination, tensor, barrier, *more = _operands(b, m, 3 + mode.im2col + multicast)
    map_unit, coordinates = _tensor_operand(b, tensor, mode)
    offsets = _offsets(b, more.pop(0), mode.dims) if mode.im2col else []
    src = [
        b.address_value(destination, space, 32),
        map_unit,
        *coordinates,
        *offsets,
        b.address_value(barrier, space, 32),
        *(b.src(x, "b16") for x in more),
    ]
    mods = mode.mods | (MODS["tma_pair"] if pair else 0) | (MODS["bulk_multicast"] if multicast else 0)
    b.emit("tma_load", src=src, mods=mods)


def _tensor_store(b: Builder, m: Modifiers, reduction: int) -> None:
    mode = _mode(b, m, "tile::scatter4", "im2col_no_offs")
    m.need("global", "shared::cta", "bulk_group")
    tensor, source = _operands(b, m, 2)
    map_unit, coordinates = _tensor_operand(b, tensor, mode)
    src = [map_unit, b.address_value(source, "shared", 32), *coordinates]
    b.emit("tma_store", src=src, mods=mode.mods | reduction << MODS["reduce_shift"])


def reduced_type(b: Builder, m: Modifiers, name: str = "") -> tuple[int, str]:
    """The number of a reduction and the type of its elements."""
    name = name or m.choose({name: name for name in _REDUCTIONS})
    type_name = m.type(_REDUCED_TYPES[name])
    # .noftz goes with .add of the 16-bit types, whose subnormals are kept (PTX ISA 9.7.9.25.4.2).
    if (type_name in ("f16", "bf16") and name == "add") != m.take("noftz"):
        b.fail(".noftz goes with .add.f16 and .add.bf16")
    return _REDUCTIONS[name], type_name


def _reduce(b: Builder, m: Modifiers) -> None:
    name = m.choose({name: name for name in _REDUCTIONS})
    if m.take("tensor"):
        _tensor_store(b, m, _REDUCTIONS[name])
        return
    _copy_from_shared(b, m, *reduced_type(b, m, name))


def _copy_from_shared(b: Builder, m: Modifiers, reduction: int, type_name: str) -> None:
    """shared::cta to global or to shared::cluster."""
    mods = reduction << MODS["reduce_shift"]
    if m.take("global"):
        m.need("shared::cta", "bulk_group")
        masked = not reduction and m.take("cp_mask")
        target, source, size, *mask = _operands(b, m, 3 + masked, behind=masked)
        src = [b.address_value(target, "global", 64), b.address_value(source, "shared", 32), b.src(size, "u32")]
        src += [b.src(x, "b16") for x in mask]
        b.emit("bulk_store", type_name, src=src, mods=mods)
        return
    m.need("shared::cluster", "shared::cta", "mbarrier::complete_tx::bytes")
    m.done()
    target, source, size, barrier = b.instruction.operands
    src = [
        b.address_value(target, "shared::cluster", 32),
        b.address_value(source, "shared", 32),
        b.src(size, "u32"),
        b.address_value(barrier, "shared::cluster", 32),
    ]
    b.emit("bulk_send", type_name, src=src, mods=mods)


def _bulk(b: Builder, m: Modifiers) -> None:
    spaces = m.those("global", *_SHARED)
    if len(spaces) != 2:
        b.fail("a destination and a source space are expected")
    if spaces[1] != "global":
        _copy_from_shared(b, m, 0, "none")
        return
    space = m.choose(_SHARED)
    m.need("global", "mbarrier::complete_tx::bytes")
    multicast = m.take("multicast::cluster")
    ignores = m.take("ignore_oob")
    if multicast and space != "shared::cluster":
        b.fail("a multicast goes to .shared::cluster")
    if ignores and space != "shared::cta":
        b.fail("a copy with .ignore_oob goes to .shared::cta")
    target, source, size, *rest = _operands(b, m, 4 + multicast + 2 * ignores)
    ignored = rest[:2] if ignores else []
    barrier, *mask = rest[len(ignored) :]
    src = [
        b.address_value(target, space, 32),
        b.address_value(source, "global", 64),
        b.src(size, "u32"),
        b.address_value(barrier, space, 32),
        *(b.src(x, "b16") for x in mask),
        *(b.src(x, "u32") for x in ignored),
    ]
    b.emit("bulk_load", src=src, mods=MODS["bulk_multicast"] if multicast else 0)


def _prefetch(b: Builder, m: Modifiers) -> None:
    if m.take("tensor"):
        mode = _mode(b, m, "tile::gather4", "im2col")
        m.need("L2", "global")
        tensor, *offsets = _operands(b, m, 1 + mode.im2col)
        map_unit, coordinates = _tensor_operand(b, tensor, mode)
        units = _offsets(b, offsets[0], mode.dims) if mode.im2col else []
        b.emit("tma_prefetch", src=[map_unit, *coordinates, *units], mods=mode.mods)
        return
    m.need("L2", "global")
    address, size = _operands(b, m, 2)
    b.emit("bulk_prefetch", src=[b.address_value(address, "global", 64), b.src(size, "u32")])


_FIELDS = (
    "global_address",
    "rank",
    "box_dim",
    "global_dim",
    "global_stride",
    "element_stride",
    "elemtype",
    "interleave_layout",
    "swizzle_mode",
    "swizzle_atomicity",
    "fill_mode",
)
_ORDINAL_FIELDS = ("box_dim", "global_dim", "global_stride", "element_stride")


def tensormap(b: Builder, m: Modifiers) -> None:
    """tensormap.replace, tensormap.cp_fenceproxy."""
    if m.take("cp_fenceproxy"):
        m.need("global", "shared::cta", "tensormap::generic", "release")
        m.choose({"cta": 0, "cluster": 1, "gpu": 2, "sys": 3})
        m.need("sync", "aligned")
        m.done()
        target, source, size = b.instruction.operands
        if not isinstance(size, Immediate) or size.bits != 128:
            b.fail("the size of a tensor map, 128, is expected")
        src = [b.address_value(target, "global", 64), _generic(b, source, "shared")]
        b.emit("tensormap_copy", "b64", src=src, aligned=True)
        return
    m.need("replace", "tile")
    field = m.choose({name: name for name in _FIELDS})
    space = m.choose({"global": "global", "shared::cta": "shared"}, "generic")
    m.need("b1024")
    type_name = m.type(("b64",) if field in ("global_address", "global_stride") else ("b32",))
    m.done()
    address, *rest = b.instruction.operands
    ordinal = 0
    if field in _ORDINAL_FIELDS:
        if len(rest) != 2 or not isinstance(rest[0], Immediate):
            b.fail("an ordinal and a new value are expected")
        ordinal = rest.pop(0).bits  # type: ignore[union-attr]
    if len(rest) != 1:
        b.fail("one new value is expected")
    value = b.src(rest[0], type_name)
    if type_name == "b32":
        wide = b.new_unit(64)
        b.emit("cvt", "u64", type2="u32", dst=[wide], src=[value], width_dst=64, width_src=32)
        value = wide
    src = [_generic(b, address, space), value]
    b.emit("tensormap_replace", "b64", src=src, immediate=ordinal << 8 | _FIELDS.index(field))


def _generic(b: Builder, operand: Operand, space: str) -> int:
    """A 64-bit unit that holds the generic address of an operand in a space."""
    if not isinstance(operand, Address):
        b.fail(f"an address is expected, not {operand}")
    if space != "shared":
        return b.address_value(operand, space, 64)
    narrow = b.address_value(operand, "shared", 32)
    wide, unit = b.new_unit(64), b.new_unit(64)
    b.emit("cvt", "u64", type2="u32", dst=[wide], src=[narrow], width_dst=64, width_src=32)
    b.emit("cvta", "u64", dst=[unit], src=[wide], mods=2 << MODS["space_shift"])
    return unit


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {"tensormap": tensormap}
