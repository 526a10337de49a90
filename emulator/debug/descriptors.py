"""Descriptors and tensor maps in words, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fmha.emulator import _core
from fmha.emulator.tensormap import decode
from fmha.emulator.tensormap_rules import TensorMapError, TensorMapFields

# tcgen05.mma's kinds, in the decoder's order.
KINDS: Final = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
_SCALES: Final = {"mxf8f6f4": 1, "mxf4": 2, "mxf4nvf4": 4}
_PATTERN: Final = {"none": 16, "32B": 256, "64B": 512, "128B": 1024, "128B of 32B atoms": 1024}


def matrix(bits: int) -> tuple[list[str], bool]:
    """A shared-memory descriptor in words, and whether a tcgen05.mma takes it."""
    found = _core.decode_matrix(bits)
    lines = [f"shared-memory matrix descriptor 0x{bits:016x}"]
    if "wrong" in found:
        return [*lines, f"  wrong: {found['wrong']}", *(f"  {line}" for line in _raw(bits))], False
    lines.append(f"  starts at shared 0x{found['start']:x}, {found['swizzle']} swizzle")
    lines.append(f"  leading dimension byte offset {found['leading']}, stride byte offset {found['stride']}")
    lines += [f"  {line}" for line in _meaning(found)]
    doubts = list(_doubts(found))
    return lines + [f"  doubtful: {doubt}" for doubt in doubts], True


def _raw(bits: int) -> Iterator[str]:
    for name, low, width, unit in (("start", 0, 14, 16), ("leading", 16, 14, 16), ("stride", 32, 14, 16)):
        yield f"bits {low}-{low + width - 1}, {name}: {(bits >> low & (1 << width) - 1) * unit} bytes"
    yield f"bits 46-48: {bits >> 46 & 7} (1 on sm_100), bits 49-51, base offset: {bits >> 49 & 7}"
    yield f"bits 61-63, swizzle: {bits >> 61} (0 none, 1 128B of 32B atoms, 2 128B, 4 64B, 6 32B)"


def _meaning(found: dict[str, object]) -> Iterator[str]:
    if found["swizzle"] == "none":
        yield "K-major: from 16 bytes of K to the next by the leading offset, from 8 rows to the next by the stride"
        yield "MN-major: from 8 of K to the next by the leading offset, from 16 bytes of M or N on by the stride"
        return
    yield "K-major: rows of the swizzle's span, 8 of them to the next 8 by the stride; the leading offset is not used"
    yield "MN-major: from 8 of K to the next by the stride, from one span of M or N to the next by the leading offset"


def _doubts(found: dict[str, object]) -> Iterator[str]:
    start, stride, swizzle = int(str(found["start"])), int(str(found["stride"])), str(found["swizzle"])
    pattern = _PATTERN[swizzle]
    if swizzle != "none" and stride and stride % pattern:
        yield f"a stride of {stride} is no multiple of the swizzle's pattern of {pattern} bytes: rows would not line up"
    if swizzle != "none" and start % pattern // 128 and not found["base"]:
        yield (
            f"it starts {start % pattern} bytes into a pattern of {pattern} with base offset 0: right only where the "
            "pattern begins at a multiple of it, and this is a step along K"
        )
    if not stride:
        yield "a stride of 0: every group of 8 rows is the first one"


def instruction(bits: int, kind: str, *, ws: bool, pair: bool, a_tmem: bool, sparse: bool) -> tuple[list[str], bool]:
    """An instruction descriptor in words, and whether a tcgen05.mma of that kind, one of KINDS, takes it."""
    found = _core.decode_instruction(
        bits, kind=KINDS.index(kind), ws=ws, pair=pair, a_tmem=a_tmem, sparse=sparse, scales=_SCALES.get(kind, 0)
    )
    lines = [f"instruction descriptor 0x{bits:08x} of tcgen05.mma{'.ws' if ws else ''}.kind::{kind}"]
    if "wrong" in found:
        return [*lines, f"  wrong: {found['wrong']}"], False
    lines.append(f"  M = {found['m']}, N = {found['n']}, K = {found['k']}")
    for which in "ab":
        major = "MN-major" if found[f"{which}_mn_major"] else "K-major"
        negated = ", negated" if found[f"negate_{which}"] else ""
        lines.append(f"  {which.upper()}: {found[which]}, {major}{negated}")
    lines.append(f"  D: {found['d']}{', saturating' if found['saturate'] else ''}")
    return lines, True


def tensor_map(raw: bytes) -> tuple[list[str], bool]:
    """The 128 bytes of a tensor map as the emulator encodes them, in words."""
    try:
        found = decode(raw)
    except TensorMapError as error:
        return ["tensor map", f"  wrong: {error}"], False
    return map_lines(found), True


def map_lines(found: TensorMapFields) -> list[str]:
    """A map in words, innermost dimension first."""
    lines = [f"tensor map of {found.dtype} at 0x{found.address:x}, rank {len(found.global_dim)}"]
    strides = ("", *(f", {stride} bytes apart" for stride in found.global_strides))
    for d, (size, stride) in enumerate(zip(found.global_dim, strides, strict=True)):
        box = f", box {found.box_dim[d]}" if found.box_dim else ""
        step = f", every {found.element_strides[d]}th" if found.element_strides[d] != 1 else ""
        lines.append(f"  dimension {d}: {size}{stride}{box}{step}")
    lines.append(f"  swizzle {found.swizzle}, interleave {found.interleave}, out of bounds {found.oob_fill}")
    return lines
