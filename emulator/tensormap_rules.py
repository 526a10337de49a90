"""Tensor maps: what cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col take, and the checks of their arguments.

The rules are those of the CUDA driver API, "Tensor Map Object Management"; an error names the argument, its value and
the rule. The driver itself (580.159.04, on an H200) was given 150,000 argument sets, a fifth of them valid, and agrees
with this module on all but those of the last two points:

- It refuses three things that the documentation does not mention, and so do we: addresses of more than 57 bits, rows
  that are no multiple of 16 bytes with any interleave, and boxes of more than 228 KiB.
- It does not enforce that strides grow with the dimension: they may be 0 or overlap.
- It takes every swizzle with interleave 32B; the documentation wants swizzle 32B, and so do we.
- It does not know the types and swizzles that came with Blackwell: their rules are from the documentation alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# name: (code, bits of an element in global memory)
DTYPES: Mapping[str, tuple[int, int]] = {
    "u8": (0, 8),
    "u16": (1, 16),
    "u32": (2, 32),
    "s32": (3, 32),
    "u64": (4, 64),
    "s64": (5, 64),
    "f16": (6, 16),
    "f32": (7, 32),
    "f64": (8, 64),
    "bf16": (9, 16),
    "f32_ftz": (10, 32),
    "tf32": (11, 32),
    "tf32_ftz": (12, 32),
    "16u4_align8b": (13, 4),
    "16u4_align16b": (14, 4),
    "16u6_align16b": (15, 6),
}
INTERLEAVES = ("none", "16B", "32B")
SWIZZLES = ("none", "32B", "64B", "128B", "128B_atom_32B", "128B_atom_32B_flip_8B", "128B_atom_64B")
L2_PROMOTIONS = ("none", "64B", "128B", "256B")
OOB_FILLS = ("none", "nan")

_FLOATS = frozenset(("f16", "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz"))
_ALIGN16B = frozenset(("16u4_align16b", "16u6_align16b"))
_SPANS = {"32B": 32, "64B": 64}
_LARGEST_BOX = 228 << 10  # the shared memory of an SM
_PACKED_SWIZZLES = {
    "16u4_align16b": ("none", "128B", "128B_atom_32B"),
    "16u6_align16b": ("none", "128B", "128B_atom_32B", "128B_atom_64B"),
}
CORNER_BITS = {3: 16, 4: 8, 5: 5}  # of each of a corner's coordinates, by rank


class TensorMapError(ValueError):
    """Arguments that the driver refuses, or bytes that are no tensor map."""


@dataclass(frozen=True, slots=True)
class Im2col:
    """What cuTensorMapEncodeIm2col has in place of a box.

    The corners are offsets from the first pixel and from the last one, of dimensions 1 (W) up to the last but one.
    """

    lower_corner: tuple[int, ...]
    upper_corner: tuple[int, ...]
    channels: int
    pixels: int


@dataclass(frozen=True, slots=True)
class TensorMapFields:
    """A tensor map's fields, dimensions innermost first. `global_strides` are bytes, of dimensions 1 and up.

    `box_dim` is empty in a map for im2col copies.
    """

    dtype: str
    address: int
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...]
    box_dim: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: str = "none"
    swizzle: str = "none"
    l2_promotion: str = "none"
    oob_fill: str = "none"
    im2col: Im2col | None = None

    @property
    def rank(self) -> int:
        """How many dimensions the tensor has."""
        return len(self.global_dim)

    @property
    def element_bits(self) -> int:
        """Bits of an element in global memory."""
        return DTYPES[self.dtype][1]

    @property
    def inner_box_bytes(self) -> int:
        """Bytes of a box's row in shared memory. The types aligned to 16 bytes take 16 for 16 elements there."""
        bits = 8 if self.dtype in _ALIGN16B else self.element_bits
        return (self.im2col.channels if self.im2col else self.box_dim[0]) * bits // 8


def require(truth: bool, argument: str, value: object, rule: str) -> None:
    """TensorMapError, with the driver's rule, unless it is true."""
    if not truth:
        raise TensorMapError(f"{argument} is {value}: {rule}")


def _one_of(argument: str, value: str, names: Sequence[str]) -> None:
    require(value in names, argument, repr(value), "must be one of " + ", ".join(names))


def _check_dimensions(tensor: TensorMapFields) -> None:
    for i, size in enumerate(tensor.global_dim):
        require(0 < size <= 1 << 32, f"global_dim[{i}]", size, "must be in 1..2^32")
    inner = tensor.global_dim[0]
    if tensor.dtype in _ALIGN16B:
        require(inner % 128 == 0, "global_dim[0]", inner, f"must be a multiple of 128 for {tensor.dtype}")
    elif tensor.dtype == "16u4_align8b":
        require(inner % 2 == 0, "global_dim[0]", inner, f"must be a multiple of 2 for {tensor.dtype}")


def _check_address(tensor: TensorMapFields) -> None:
    if tensor.interleave == "32B" or tensor.dtype in _ALIGN16B:
        alignment, why = 32, f" for {'interleave 32B' if tensor.interleave == '32B' else tensor.dtype}"
    else:
        alignment, why = 16, ""
    require(0 <= tensor.address < 1 << 57, "address", hex(tensor.address), "must be less than 2^57")
    require(tensor.address % alignment == 0, "address", hex(tensor.address), f"must be {alignment}-byte aligned{why}")
    for i, stride in enumerate(tensor.global_strides):
        argument = f"global_strides[{i}]"
        require(0 <= stride < 1 << 40, argument, stride, "must be less than 2^40 bytes")
        require(stride % alignment == 0, argument, stride, f"must be a multiple of {alignment} bytes{why}")


def _check_element_strides(tensor: TensorMapFields) -> None:
    for i, stride in enumerate(tensor.element_strides):
        require(0 < stride <= 8, f"element_strides[{i}]", stride, "must be in 1..8")


def _check_pixels(tensor: TensorMapFields, im2col: Im2col) -> None:
    count, bits = tensor.rank - 2, CORNER_BITS[tensor.rank]
    limit = 1 << bits - 1
    for argument, corner in (
        ("pixel_box_lower_corner", im2col.lower_corner),
        ("pixel_box_upper_corner", im2col.upper_corner),
    ):
        rule = f"must have {count} entries in {-limit}..{limit - 1} for rank {tensor.rank}"
        require(len(corner) == count and all(-limit <= x < limit for x in corner), argument, list(corner), rule)
    require(0 < im2col.channels <= 256, "channels_per_pixel", im2col.channels, "must be in 1..256")
    require(0 < im2col.pixels <= 1024, "pixels_per_column", im2col.pixels, "must be in 1..1024")
    bits = im2col.channels * tensor.element_bits
    rule = f"must make rows of a multiple of 16 bytes, not {bits / 8:g} bytes"
    require(bits % 128 == 0, "channels_per_pixel", im2col.channels, rule)


def _check_box(tensor: TensorMapFields) -> None:
    for i, size in enumerate(tensor.box_dim):
        require(0 < size <= 256, f"box_dim[{i}]", size, "must be in 1..256")
    inner = tensor.box_dim[0]
    if tensor.dtype in _ALIGN16B:
        require(inner == 128, "box_dim[0]", inner, f"must be 128 for {tensor.dtype}")
    bits = inner * tensor.element_bits
    rule = f"must make rows of a multiple of 16 bytes, not {bits / 8:g} bytes"
    require(bits % 128 == 0, "box_dim[0]", inner, rule)
    # The driver rounds the quotients down, although a box holds them rounded up.
    elements = math.prod(size // stride for size, stride in zip(tensor.box_dim, tensor.element_strides, strict=True))
    rule = f"must make boxes of at most {_LARGEST_BOX} bytes, not {elements * tensor.element_bits // 8}"
    require(elements * tensor.element_bits // 8 <= _LARGEST_BOX, "box_dim", list(tensor.box_dim), rule)


def _check_modes(tensor: TensorMapFields) -> None:
    if tensor.interleave == "32B":
        require(tensor.swizzle == "32B", "swizzle", repr(tensor.swizzle), "must be 32B with interleave 32B")
    if tensor.interleave == "none" and tensor.swizzle != "none":
        span = _SPANS.get(tensor.swizzle, 128)
        rule = f"must make rows of at most {span} bytes, not {tensor.inner_box_bytes}, with swizzle {tensor.swizzle}"
        argument = (
            ("channels_per_pixel", tensor.im2col.channels) if tensor.im2col else ("box_dim[0]", tensor.box_dim[0])
        )
        require(tensor.inner_box_bytes <= span, *argument, rule)
    if tensor.dtype == "16u6_align16b":
        rule = f"must be none for {tensor.dtype}"
        require(tensor.interleave == "none", "interleave", repr(tensor.interleave), rule)
    allowed = _PACKED_SWIZZLES.get(tensor.dtype)
    if allowed is not None:
        rule = f"must be one of {', '.join(allowed)} for {tensor.dtype}"
        require(tensor.swizzle in allowed, "swizzle", repr(tensor.swizzle), rule)
    if tensor.oob_fill == "nan":
        rule = f"needs a floating-point type, not {tensor.dtype}"
        require(tensor.dtype in _FLOATS, "oob_fill", repr(tensor.oob_fill), rule)


def check(tensor: TensorMapFields) -> None:
    """Raise TensorMapError if the driver refuses these arguments."""
    require(tensor.dtype in DTYPES, "dtype", repr(tensor.dtype), "must be one of " + ", ".join(DTYPES))
    _one_of("interleave", tensor.interleave, INTERLEAVES)
    _one_of("swizzle", tensor.swizzle, SWIZZLES)
    _one_of("l2_promotion", tensor.l2_promotion, L2_PROMOTIONS)
    _one_of("oob_fill", tensor.oob_fill, OOB_FILLS)
    rank = tensor.rank
    least = 3 if tensor.im2col else 1
    require(least <= rank <= 5, "rank", rank, f"must be in {least}..5")
    if tensor.interleave != "none":
        require(rank >= 3, "rank", rank, f"must be at least 3 with interleave {tensor.interleave}")
    lengths = [("global_strides", rank - 1), ("element_strides", rank)]
    if not tensor.im2col:
        lengths.append(("box_dim", rank))
    for argument, length in lengths:
        values = getattr(tensor, argument)
        require(len(values) == length, argument, list(values), f"must have {length} entries for rank {rank}")
    _check_dimensions(tensor)
    _check_address(tensor)
    _check_element_strides(tensor)
    if tensor.im2col:
        _check_pixels(tensor, tensor.im2col)
    else:
        _check_box(tensor)
    _check_modes(tensor)
