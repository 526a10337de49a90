"""Tensor maps as bytes: our encoding of the 128 opaque ones.

The encoding is ours, not the hardware's (which is secret). Like the hardware's, it says everything in the first 64 of
its 128 bytes: kernels that make a map from another one (the CuTe DSL's grouped GEMM) copy no more. Little-endian,
`struct` format `STRUCT`, then zeros:

    offset  size  field
         0     8  global address
         8     2  magic 0x4D54, "TM"
        10     1  bits 0-3 data type, as in CUtensorMapDataType; bit 4 out-of-bounds fill, as in
                  CUtensorMapFloatOOBfill: 0 zeros, 1 NaN; bit 5 ignored, see below; bits 6-7 interleave, as in
                  CUtensorMapInterleave: 0 none, 1 16B, 2 32B
        11     1  bits 0-2 swizzle, as in CUtensorMapSwizzle: 0 none, 1 32B, 2 64B, 3 128B, 4 128B with atoms of 32B,
                  5 the same with 8-byte halves flipped in alternate rows, 6 128B with atoms of 64B; bits 3-5 rank,
                  1..5; bits 6-7 L2 promotion, as in CUtensorMapL2promotion: 0 none, 1 64B, 2 128B, 3 256B
        12     4  CRC-32 (zlib) of bytes 0-11, without the bit that is ignored, and 16-63
        16    20  5 x (global dimension - 1); unused dimensions 0
        36    20  4 x 40-bit global stride in bytes, of dimensions 1..4; unused ones 0
        56     5  5 x u8 (box dimension - 1); unused ones 0
        61     2  5 x 3 bits (element stride - 1); unused ones 0
        63     1  bit d: the box dimension d is set; tensormap.replace begins with none

Released code knows one bit of the hardware's encoding, 21 of the second 64-bit word, and sets or clears it by the size
of the tensor: CUTLASS on the host, kernels of the CuTe DSL where they have replaced an address or a dimension.

A map for im2col copies has bit 7 of byte 63 set, and there:

        56     1  channels per pixel - 1
        57     4  the corners of the bounding box, W first, the lower one first: 2 x 16, 4 x 8 or 6 x 5 bits, signed
        61     2  bits 0-2: bits 7-9 of pixels per column - 1; then 4 x 3 bits (element stride - 1)
        63     1  bits 0-6: those of pixels per column - 1
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from fmha.emulator.tensormap_rules import (
    CORNER_BITS,
    DTYPES,
    INTERLEAVES,
    L2_PROMOTIONS,
    OOB_FILLS,
    SWIZZLES,
    Im2col,
    TensorMapFields,
    check,
    require,
)

STRUCT = struct.Struct("<QHBBI5I20s5sHB")
MAGIC = 0x4D54
NBYTES = 128
_IGNORED = 1 << 21  # of the second word


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
        require(rank == len(global_dim), "global_dim", list(global_dim), f"must have {rank} entries for rank {rank}")
    tensor = TensorMapFields(
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
    tensor = TensorMapFields(
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


def _pack_box(tensor: TensorMapFields) -> tuple[bytes, int, int]:
    """Bytes 56 to 60, 61 to 62 and 63."""
    strides = sum(stride - 1 << 3 * d for d, stride in enumerate(tensor.element_strides))
    if tensor.im2col is None:
        return bytes(size - 1 for size in tensor.box_dim).ljust(5, b"\0"), strides, (1 << tensor.rank) - 1
    bits = CORNER_BITS[tensor.rank]
    corners = enumerate((*tensor.im2col.lower_corner, *tensor.im2col.upper_corner))
    packed = sum((x & (1 << bits) - 1) << bits * n for n, x in corners)
    pixels = tensor.im2col.pixels - 1
    first = bytes([tensor.im2col.channels - 1]) + packed.to_bytes(4, "little")
    return first, strides & ~7 | pixels >> 7, pixels & 0x7F | 0x80


def _unpack_im2col(rank: int, first: bytes, strides: int, last: int) -> Im2col:
    bits, packed = CORNER_BITS[rank], int.from_bytes(first[1:], "little")
    values = [(packed >> bits * n) & (1 << bits) - 1 for n in range(2 * (rank - 2))]
    corners = tuple(x - (x >> bits - 1 << bits) for x in values)
    pixels = (last & 0x7F | (strides & 7) << 7) + 1
    return Im2col(corners[: rank - 2], corners[rank - 2 :], first[0] + 1, pixels)


def _pack(tensor: TensorMapFields) -> bytes:
    code, _ = DTYPES[tensor.dtype]
    fill, interleave = OOB_FILLS.index(tensor.oob_fill), INTERLEAVES.index(tensor.interleave)
    promotion = L2_PROMOTIONS.index(tensor.l2_promotion)
    unused = [0] * (5 - tensor.rank)
    box = _pack_box(tensor)

    def packed(checksum: int) -> bytes:
        return STRUCT.pack(
            tensor.address,
            MAGIC,
            code | fill << 4 | interleave << 6,
            SWIZZLES.index(tensor.swizzle) | tensor.rank << 3 | promotion << 6,
            checksum,
            *(size - 1 for size in tensor.global_dim),
            *unused,
            b"".join(stride.to_bytes(5, "little") for stride in (*tensor.global_strides, *unused)),
            *box,
        )

    return packed(_checksum(packed(0))).ljust(NBYTES, b"\0")


def _checksum(data: bytes) -> int:
    fields = int.from_bytes(data[8:12], "little") & ~_IGNORED
    return zlib.crc32(data[:8] + fields.to_bytes(4, "little") + data[16 : STRUCT.size])


def decode(data: bytes) -> TensorMapFields:
    """The fields of 128 bytes that `encode_tiled` made. Raises TensorMapError for any others."""
    require(len(data) == NBYTES, "length", len(data), f"a tensor map has {NBYTES} bytes")
    address, magic, kind, layout, checksum, *numbers = STRUCT.unpack(data[: STRUCT.size])
    require(magic == MAGIC, "magic", hex(magic), "these bytes are no tensor map")
    crc = _checksum(data)
    require(checksum == crc, "checksum", hex(checksum), f"the bytes of this tensor map were changed ({crc:#x})")
    rank = layout >> 3 & 7
    strides, box, element_strides, last = numbers[5:]
    im2col = _unpack_im2col(rank, box, element_strides, last) if last & 0x80 else None
    if im2col:
        element_strides &= ~7  # the innermost dimension's, which is not looked at
    return TensorMapFields(
        dtype=list(DTYPES)[kind & 0xF],
        address=address,
        global_dim=tuple(size + 1 for size in numbers[:rank]),
        global_strides=tuple(int.from_bytes(strides[5 * d : 5 * d + 5], "little") for d in range(rank - 1)),
        box_dim=() if im2col else tuple(size + 1 for size in box[:rank]),
        element_strides=tuple((element_strides >> 3 * d & 7) + 1 for d in range(rank)),
        interleave=INTERLEAVES[kind >> 6],
        swizzle=SWIZZLES[layout & 7],
        l2_promotion=L2_PROMOTIONS[layout >> 6],
        oob_fill=OOB_FILLS[kind >> 4 & 1],
        im2col=im2col,
    )
