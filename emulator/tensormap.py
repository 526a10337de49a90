"""Tensor maps: the argument checks of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col, and our encoding of the 128
opaque bytes.

The rules are those of the CUDA driver API, "Tensor Map Object Management"; an error names the argument, its value and
the rule. The driver itself (580.159.04, on an H200) was given 150,000 argument sets, a fifth of them valid, and agrees
with this module on all but those of the last two points:

- It refuses three things that the documentation does not mention, and so do we: addresses of more than 57 bits, rows
  that are no multiple of 16 bytes with any interleave, and boxes of more than 228 KiB.
- It does not enforce that strides grow with the dimension: they may be 0 or overlap.
- It takes every swizzle with interleave 32B; the documentation wants swizzle 32B, and so do we.
- It does not know the types and swizzles that came with Blackwell: their rules are from the documentation alone.

The encoding is ours, not the hardware's (which is secret). Like the hardware's, it says everything in the first 64 of
its 128 bytes: kernels that make a map from another one (the CuTe DSL's grouped GEMM) copy no more. Little-endian,
`struct` format `STRUCT`, then zeros:

    offset  size  field
         0     2  magic 0x4D54, "TM"
         2     1  bits 0-3 data type, as in CUtensorMapDataType; bit 4 out-of-bounds fill, as in
                  CUtensorMapFloatOOBfill: 0 zeros, 1 NaN; bits 5-6 interleave, as in CUtensorMapInterleave: 0 none,
                  1 16B, 2 32B
         3     1  bits 0-2 swizzle, as in CUtensorMapSwizzle: 0 none, 1 32B, 2 64B, 3 128B, 4 128B with atoms of 32B,
                  5 the same with 8-byte halves flipped in alternate rows, 6 128B with atoms of 64B; bits 3-5 rank,
                  1..5; bits 6-7 L2 promotion, as in CUtensorMapL2promotion: 0 none, 1 64B, 2 128B, 3 256B
         4     4  CRC-32 (zlib) of bytes 0-3 and 8-63
         8     8  global address
        16    20  5 x (global dimension - 1); unused dimensions 0
        36    20  4 x 40-bit global stride in bytes, of dimensions 1..4; unused ones 0
        56     5  5 x u8 (box dimension - 1); unused ones 0
        61     2  5 x 3 bits (element stride - 1); unused ones 0
        63     1  bit d: the box dimension d is set; tensormap.replace begins with none

A map for im2col copies has bit 7 of byte 63 set, and there:

        56     1  channels per pixel - 1
        57     4  the corners of the bounding box, W first, the lower one first: 2 x 16, 4 x 8 or 6 x 5 bits, signed
        61     2  bits 0-2: bits 7-9 of pixels per column - 1; then 4 x 3 bits (element stride - 1)
        63     1  bits 0-6: those of pixels per column - 1
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

STRUCT = struct.Struct("<HBBIQ5I20s5sHB")
MAGIC = 0x4D54
NBYTES = 128

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


_CORNER_BITS = {3: 16, 4: 8, 5: 5}  # of each of a corner's coordinates, by rank


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
class TensorMap:
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
        return len(self.global_dim)

    @property
    def element_bits(self) -> int:
        return DTYPES[self.dtype][1]

    @property
    def inner_box_bytes(self) -> int:
        """Bytes of a box's row in shared memory. The types aligned to 16 bytes take 16 for 16 elements there."""
        bits = 8 if self.dtype in _ALIGN16B else self.element_bits
        return (self.im2col.channels if self.im2col else self.box_dim[0]) * bits // 8


def _require(truth: bool, argument: str, value: object, rule: str) -> None:
    if not truth:
        raise TensorMapError(f"{argument} is {value}: {rule}")


def _one_of(argument: str, value: str, names: Sequence[str]) -> None:
    _require(value in names, argument, repr(value), "must be one of " + ", ".join(names))


def _check_dimensions(tensor: TensorMap) -> None:
    for i, size in enumerate(tensor.global_dim):
        _require(0 < size <= 1 << 32, f"global_dim[{i}]", size, "must be in 1..2^32")
    inner = tensor.global_dim[0]
    if tensor.dtype in _ALIGN16B:
        _require(inner % 128 == 0, "global_dim[0]", inner, f"must be a multiple of 128 for {tensor.dtype}")
    elif tensor.dtype == "16u4_align8b":
        _require(inner % 2 == 0, "global_dim[0]", inner, f"must be a multiple of 2 for {tensor.dtype}")


def _check_address(tensor: TensorMap) -> None:
    if tensor.interleave == "32B" or tensor.dtype in _ALIGN16B:
        alignment, why = 32, f" for {'interleave 32B' if tensor.interleave == '32B' else tensor.dtype}"
    else:
        alignment, why = 16, ""
    _require(0 <= tensor.address < 1 << 57, "address", hex(tensor.address), "must be less than 2^57")
    _require(tensor.address % alignment == 0, "address", hex(tensor.address), f"must be {alignment}-byte aligned{why}")
    for i, stride in enumerate(tensor.global_strides):
        argument = f"global_strides[{i}]"
        _require(0 <= stride < 1 << 40, argument, stride, "must be less than 2^40 bytes")
        _require(stride % alignment == 0, argument, stride, f"must be a multiple of {alignment} bytes{why}")


def _check_element_strides(tensor: TensorMap) -> None:
    for i, stride in enumerate(tensor.element_strides):
        _require(0 < stride <= 8, f"element_strides[{i}]", stride, "must be in 1..8")


def _check_pixels(tensor: TensorMap, im2col: Im2col) -> None:
    count, bits = tensor.rank - 2, _CORNER_BITS[tensor.rank]
    limit = 1 << bits - 1
    for argument, corner in (
        ("pixel_box_lower_corner", im2col.lower_corner),
        ("pixel_box_upper_corner", im2col.upper_corner),
    ):
        rule = f"must have {count} entries in {-limit}..{limit - 1} for rank {tensor.rank}"
        _require(len(corner) == count and all(-limit <= x < limit for x in corner), argument, list(corner), rule)
    _require(0 < im2col.channels <= 256, "channels_per_pixel", im2col.channels, "must be in 1..256")
    _require(0 < im2col.pixels <= 1024, "pixels_per_column", im2col.pixels, "must be in 1..1024")
    bits = im2col.channels * tensor.element_bits
    rule = f"must make rows of a multiple of 16 bytes, not {bits / 8:g} bytes"
    _require(bits % 128 == 0, "channels_per_pixel", im2col.channels, rule)


def _check_box(tensor: TensorMap) -> None:
    for i, size in enumerate(tensor.box_dim):
        _require(0 < size <= 256, f"box_dim[{i}]", size, "must be in 1..256")
    inner = tensor.box_dim[0]
    if tensor.dtype in _ALIGN16B:
        _require(inner == 128, "box_dim[0]", inner, f"must be 128 for {tensor.dtype}")
    bits = inner * tensor.element_bits
    rule = f"must make rows of a multiple of 16 bytes, not {bits / 8:g} bytes"
    _require(bits % 128 == 0, "box_dim[0]", inner, rule)
    # The driver rounds the quotients down, although a box holds them rounded up.
    elements = math.prod(size // stride for size, stride in zip(tensor.box_dim, tensor.element_strides, strict=True))
    rule = f"must make boxes of at most {_LARGEST_BOX} bytes, not {elements * tensor.element_bits // 8}"
    _require(elements * tensor.element_bits // 8 <= _LARGEST_BOX, "box_dim", list(tensor.box_dim), rule)


def _check_modes(tensor: TensorMap) -> None:
    if tensor.interleave == "32B":
        _require(tensor.swizzle == "32B", "swizzle", repr(tensor.swizzle), "must be 32B with interleave 32B")
    if tensor.interleave == "none" and tensor.swizzle != "none":
        span = _SPANS.get(tensor.swizzle, 128)
        rule = f"must make rows of at most {span} bytes, not {tensor.inner_box_bytes}, with swizzle {tensor.swizzle}"
        argument = (
            ("channels_per_pixel", tensor.im2col.channels) if tensor.im2col else ("box_dim[0]", tensor.box_dim[0])
        )
        _require(tensor.inner_box_bytes <= span, *argument, rule)
    if tensor.dtype == "16u6_align16b":
        rule = f"must be none for {tensor.dtype}"
        _require(tensor.interleave == "none", "interleave", repr(tensor.interleave), rule)
    allowed = _PACKED_SWIZZLES.get(tensor.dtype)
    if allowed is not None:
        rule = f"must be one of {', '.join(allowed)} for {tensor.dtype}"
        _require(tensor.swizzle in allowed, "swizzle", repr(tensor.swizzle), rule)
    if tensor.oob_fill == "nan":
        rule = f"needs a floating-point type, not {tensor.dtype}"
        _require(tensor.dtype in _FLOATS, "oob_fill", repr(tensor.oob_fill), rule)


def check(tensor: TensorMap) -> None:
    """Raise TensorMapError if the driver refuses these arguments."""
    _require(tensor.dtype in DTYPES, "dtype", repr(tensor.dtype), "must be one of " + ", ".join(DTYPES))
    _one_of("interleave", tensor.interleave, INTERLEAVES)
    _one_of("swizzle", tensor.swizzle, SWIZZLES)
    _one_of("l2_promotion", tensor.l2_promotion, L2_PROMOTIONS)
    _one_of("oob_fill", tensor.oob_fill, OOB_FILLS)
    rank = tensor.rank
    least = 3 if tensor.im2col else 1
    _require(least <= rank <= 5, "rank", rank, f"must be in {least}..5")
    if tensor.interleave != "none":
        _require(rank >= 3, "rank", rank, f"must be at least 3 with interleave {tensor.interleave}")
    lengths = [("global_strides", rank - 1), ("element_strides", rank)]
    if not tensor.im2col:
        lengths.append(("box_dim", rank))
    for argument, length in lengths:
        values = getattr(tensor, argument)
        _require(len(values) == length, argument, list(values), f"must have {length} entries for rank {rank}")
    _check_dimensions(tensor)
    _check_address(tensor)
    _check_element_strides(tensor)
    if tensor.im2col:
        _check_pixels(tensor, tensor.im2col)
    else:
        _check_box(tensor)
    _check_modes(tensor)


def encode_tiled(
    *,
    dtype: str,
    address: int,
    global_dim: Sequence[int],
    global_strides: Sequence[int],
    box_dim: Sequence[int],
    element_strides: Sequence[int] | None = None,
    rank: int | None = None,
    interleave: str = "none",
    swizzle: str = "none",
    l2_promotion: str = "none",
    oob_fill: str = "none",
) -> bytes:
    """The 128 bytes of a tensor map, from the arguments of cuTensorMapEncodeTiled.

    Dimensions are innermost first; `global_strides` are bytes and leave the innermost out; `element_strides` default to
    ones. Raises TensorMapError for what the driver refuses.
    """
    if rank is not None:
        _require(rank == len(global_dim), "global_dim", list(global_dim), f"must have {rank} entries for rank {rank}")
    tensor = TensorMap(
        dtype=dtype,
        address=int(address),
        global_dim=tuple(int(size) for size in global_dim),
        global_strides=tuple(int(stride) for stride in global_strides),
        box_dim=tuple(int(size) for size in box_dim),
        element_strides=tuple(int(stride) for stride in element_strides or [1] * len(global_dim)),
        interleave=interleave,
        swizzle=swizzle,
        l2_promotion=l2_promotion,
        oob_fill=oob_fill,
    )
    check(tensor)
    return _pack(tensor)


def encode_im2col(
    *,
    dtype: str,
    address: int,
    global_dim: Sequence[int],
    global_strides: Sequence[int],
    pixel_box_lower_corner: Sequence[int],
    pixel_box_upper_corner: Sequence[int],
    channels_per_pixel: int,
    pixels_per_column: int,
    element_strides: Sequence[int] | None = None,
    interleave: str = "none",
    swizzle: str = "none",
    l2_promotion: str = "none",
    oob_fill: str = "none",
) -> bytes:
    """The same of a map for im2col copies, from the arguments of cuTensorMapEncodeIm2col: of a tensor of 3 to 5
    dimensions, channels innermost, then W, H and D as far as it has them, then N. Corners are W first."""
    tensor = TensorMap(
        dtype=dtype,
        address=int(address),
        global_dim=tuple(int(size) for size in global_dim),
        global_strides=tuple(int(stride) for stride in global_strides),
        box_dim=(),
        element_strides=tuple(int(stride) for stride in element_strides or [1] * len(global_dim)),
        interleave=interleave,
        swizzle=swizzle,
        l2_promotion=l2_promotion,
        oob_fill=oob_fill,
        im2col=Im2col(
            tuple(int(x) for x in pixel_box_lower_corner),
            tuple(int(x) for x in pixel_box_upper_corner),
            int(channels_per_pixel),
            int(pixels_per_column),
        ),
    )
    check(tensor)
    return _pack(tensor)


def _pack_box(tensor: TensorMap) -> tuple[bytes, int, int]:
    """Bytes 56 to 60, 61 to 62 and 63."""
    strides = sum(stride - 1 << 3 * d for d, stride in enumerate(tensor.element_strides))
    if tensor.im2col is None:
        return bytes(size - 1 for size in tensor.box_dim).ljust(5, b"\0"), strides, (1 << tensor.rank) - 1
    bits = _CORNER_BITS[tensor.rank]
    corners = enumerate((*tensor.im2col.lower_corner, *tensor.im2col.upper_corner))
    packed = sum((x & (1 << bits) - 1) << bits * n for n, x in corners)
    pixels = tensor.im2col.pixels - 1
    first = bytes([tensor.im2col.channels - 1]) + packed.to_bytes(4, "little")
    return first, strides & ~7 | pixels >> 7, pixels & 0x7F | 0x80


def _unpack_im2col(rank: int, first: bytes, strides: int, last: int) -> Im2col:
    bits, packed = _CORNER_BITS[rank], int.from_bytes(first[1:], "little")
    values = [(packed >> bits * n) & (1 << bits) - 1 for n in range(2 * (rank - 2))]
    corners = tuple(x - (x >> bits - 1 << bits) for x in values)
    pixels = (last & 0x7F | (strides & 7) << 7) + 1
    return Im2col(corners[: rank - 2], corners[rank - 2 :], first[0] + 1, pixels)


def _pack(tensor: TensorMap) -> bytes:
    code, _ = DTYPES[tensor.dtype]
    fill, interleave = OOB_FILLS.index(tensor.oob_fill), INTERLEAVES.index(tensor.interleave)
    promotion = L2_PROMOTIONS.index(tensor.l2_promotion)
    unused = [0] * (5 - tensor.rank)
    box = _pack_box(tensor)

    def packed(checksum: int) -> bytes:
        return STRUCT.pack(
            MAGIC,
            code | fill << 4 | interleave << 5,
            SWIZZLES.index(tensor.swizzle) | tensor.rank << 3 | promotion << 6,
            checksum,
            tensor.address,
            *(size - 1 for size in tensor.global_dim),
            *unused,
            b"".join(stride.to_bytes(5, "little") for stride in (*tensor.global_strides, *unused)),
            *box,
        )

    return packed(_checksum(packed(0))).ljust(NBYTES, b"\0")


def _checksum(data: bytes) -> int:
    return zlib.crc32(data[:4] + data[8 : STRUCT.size])


def decode(data: bytes) -> TensorMap:
    """The fields of 128 bytes that `encode_tiled` made. Raises TensorMapError for any others."""
    _require(len(data) == NBYTES, "length", len(data), f"a tensor map has {NBYTES} bytes")
    magic, kind, layout, checksum, address, *numbers = STRUCT.unpack(data[: STRUCT.size])
    _require(magic == MAGIC, "magic", hex(magic), "these bytes are no tensor map")
    crc = _checksum(data)
    _require(checksum == crc, "checksum", hex(checksum), f"the bytes of this tensor map were changed ({crc:#x})")
    rank = layout >> 3 & 7
    strides, box, element_strides, last = numbers[5:]
    im2col = _unpack_im2col(rank, box, element_strides, last) if last & 0x80 else None
    if im2col:
        element_strides &= ~7  # the innermost dimension's, which is not looked at
    return TensorMap(
        dtype=list(DTYPES)[kind & 0xF],
        address=address,
        global_dim=tuple(size + 1 for size in numbers[:rank]),
        global_strides=tuple(int.from_bytes(strides[5 * d : 5 * d + 5], "little") for d in range(rank - 1)),
        box_dim=() if im2col else tuple(size + 1 for size in box[:rank]),
        element_strides=tuple((element_strides >> 3 * d & 7) + 1 for d in range(rank)),
        interleave=INTERLEAVES[kind >> 5],
        swizzle=SWIZZLES[layout & 7],
        l2_promotion=L2_PROMOTIONS[layout >> 6],
        oob_fill=OOB_FILLS[kind >> 4 & 1],
        im2col=im2col,
    )
