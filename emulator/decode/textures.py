"""tex, tld4, txq, suld, sust, suq and istypep (PTX ISA 9.7.10 and 9.7.11), by handles of objects (.texmode_unified)."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import Builder, width_of
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Operand, Register, Sink, TensorAddress, Vector

# The dimensions of a geometry, and whether it has layers, whose number comes first among the coordinates.
_GEOMETRIES = {"1d": (1, False), "2d": (2, False), "3d": (3, False), "a1d": (1, True), "a2d": (2, True)}
_CHANNELS = 4
# What txq and suq ask for: the order is that of core/ptx/textures/texture.cpp.
_QUERIES = {name: n for n, name in enumerate(("width", "height", "depth", "array_size"))}
_TEXTURE_QUERIES = _QUERIES | {"num_mipmap_levels": 4, "normalized_coords": 5}
_OUTSIDE = {"trap": 0, "clamp": 1, "zero": 2}


def _take_geometry(m: Modifiers) -> tuple[int, int]:
    """How many coordinates there are, layers among them, and the bits of mods."""
    dimensions, layered = m.choose(_GEOMETRIES)
    return dimensions + layered, dimensions << MODS["image_dim_shift"] | layered * MODS["image_layered"]


def _address(b: Builder, operand: Operand, count: int, layered: bool, type_name: str) -> tuple[int, list[int]]:
    """The handle, and so many coordinates. The ISA lets a vector be longer, of four elements for three."""
    if not isinstance(operand, TensorAddress):
        b.fail(f"an object and its coordinates are expected, not {operand}; texture references are not modelled")
    if operand.descriptor.offset or not isinstance(operand.descriptor.base, Register):
        b.fail("the handle of an object, in a register, is expected; texture references are not modelled")
    given = operand.coordinates
    if not count <= len(given) <= _CHANNELS:
        b.fail(f"{count} coordinates are expected, not {len(given)}")
    types = ["u32" if layered and not n else type_name for n in range(count)]
    return b.src(operand.descriptor.base, "b64"), [b.src(x, t) for x, t in zip(given, types, strict=False)]


def _results(b: Builder, operand: Operand, count: int, type_name: str) -> list[int]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        b.fail(f"{count} destination registers are expected, not {len(items)}")
    return [-1 if isinstance(x, Sink) else b.dst(x, type_name, any_width=True) for x in items]


def texture(b: Builder, m: Modifiers) -> None:
    """tex. There are no mipmaps: a level of detail and gradients choose none, and are read all the same."""
    chosen = m.choose({"base": 0, "level": 1, "grad": 2}, 0)
    count, mods = _take_geometry(m)
    m.need("v4")
    type_name, coordinate = m.type(("u32", "s32", "f32")), m.type(("s32", "f32"))
    m.done()
    operands = b.operands(2 + chosen)
    dst = _results(b, operands[0], _CHANNELS, type_name)
    layered = bool(mods & MODS["image_layered"])
    handle, places = _address(b, operands[1], count, layered, coordinate)
    rest = [x for operand in operands[2:] for x in (operand.items if isinstance(operand, Vector) else (operand,))]
    if coordinate == "f32":
        mods |= MODS["tex_float"]
    src = [handle, *places, *(b.src(x, "f32" if coordinate == "f32" else "b32") for x in rest)]
    b.emit("tex", type_name, dst=dst, src=src, mods=mods)


def gather(b: Builder, m: Modifiers) -> None:
    """tld4: one channel of four elements."""
    component = m.choose({"r": 0, "g": 1, "b": 2, "a": 3})
    layered = m.choose({"2d": False, "a2d": True})
    mods = 2 << MODS["image_dim_shift"] | layered * MODS["image_layered"] | component << MODS["tex_component_shift"]
    m.need("v4")
    type_name = m.type(("u32", "s32", "f32"))
    m.need("f32")
    m.done()
    to, address = b.operands(2)
    handle, places = _address(b, address, 2 + layered, layered, "f32")
    mods |= MODS["tex_float"] | MODS["tex_gather"]
    b.emit("tex", type_name, dst=_results(b, to, _CHANNELS, type_name), src=[handle, *places], mods=mods)


def _surface(b: Builder, m: Modifiers) -> tuple[int, int, int, str]:
    """How many coordinates and values an access has, the bits of mods, and the type of its values."""
    m.need("b")
    count, mods = _take_geometry(m)
    vector = m.choose({"v2": 2, "v4": 4}, 1)
    type_name = m.type(("b8", "b16", "b32", "b64"))
    if vector * width_of(type_name) > 128:
        b.fail("a surface is accessed by 16 bytes at most")
    mods |= m.choose(_OUTSIDE) << MODS["surface_shift"]
    m.done()
    return count, vector, mods, type_name


def load(b: Builder, m: Modifiers) -> None:
    """suld.b. Cache operators are hints."""
    m.take("ca", "cg", "cs", "cv")
    count, vector, mods, type_name = _surface(b, m)
    to, address = b.operands(2)
    handle, places = _address(b, address, count, bool(mods & MODS["image_layered"]), "s32")
    dst = _results(b, to, vector, type_name)
    items = to.items if isinstance(to, Vector) else (to,)
    widths = [width_of(x.type) for x in items if isinstance(x, Register)]
    b.emit("suld", type_name, dst=dst, src=[handle, *places], mods=mods, width_dst=widths[0] if widths else 0)


def store(b: Builder, m: Modifiers) -> None:
    """sust.b: the record's immediate is the number of values, which come before the coordinates."""
    m.take("wb", "cg", "cs", "wt")
    count, vector, mods, type_name = _surface(b, m)
    address, source = b.operands(2)
    handle, places = _address(b, address, count, bool(mods & MODS["image_layered"]), "s32")
    items = source.items if isinstance(source, Vector) else (source,)
    if len(items) != vector:
        b.fail(f"{vector} source registers are expected, not {len(items)}")
    width = next((width_of(x.type) for x in items if isinstance(x, Register)), width_of(type_name))
    values = [b.src(x, f"b{width}" if isinstance(x, Register) else type_name, any_width=True) for x in items]
    b.emit("sust", type_name, src=[handle, *values, *places], mods=mods, immediate=vector, width_src=width)


def _query(b: Builder, m: Modifiers, queries: dict[str, int], mods: int) -> None:
    asked = m.choose(queries)
    m.need("b32")
    m.done()
    to, address = b.operands(2)
    handle = b.address_value(address, "generic", 64)
    b.emit("image_query", "b32", dst=[b.dst(to, "b32")], src=[handle], mods=mods, immediate=asked)


def query_texture(b: Builder, m: Modifiers) -> None:
    """txq: what a texture is."""
    _query(b, m, _TEXTURE_QUERIES, 0)


def query_surface(b: Builder, m: Modifiers) -> None:
    """suq: what a surface is."""
    _query(b, m, _QUERIES, MODS["image_surface"])


def is_reference(b: Builder, m: Modifiers) -> None:
    """istypep: whether a handle is of a texture, sampler or surface reference, which its highest bits say (ptxas 13.0).
    Those of objects have none of the three."""
    bit = m.choose({"texref": 61, "samplerref": 62, "surfref": 63})
    m.done()
    to, handle = b.operands(2)
    kept = b.new_unit(64)
    b.emit("and", "b64", dst=[kept], src=[b.src(handle, "b64"), b.number(1 << bit, 64)])
    unequal = 1 << MODS["cmp_shift"]
    b.emit("setp", "b64", dst=[b.dst(to, "pred")], src=[kept, b.number(0, 64)], mods=unequal)


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "tex": texture,
    "tld4": gather,
    "txq": query_texture,
    "suld": load,
    "sust": store,
    "suq": query_surface,
    "istypep": is_reference,
}
