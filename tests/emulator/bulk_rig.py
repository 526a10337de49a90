"""Tensor maps over NumPy arrays, boxes cut out of them and pasted into them, and kernels that copy one box."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.emulator import encode_tiled
from tests.emulator.clusterlab import MapMaker, init_barriers, run, wait

Array = NDArray[Any]
Shape = tuple[int, ...]
DTYPES = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "s32": np.int32, "f32": np.float32, "u64": np.uint64,
          "s64": np.int64, "f64": np.float64, "f16": np.float16, "f32_ftz": np.float32}  # fmt: skip


def tiled(name: str, shape: Shape, box: Shape, dtype: str = "u32", pitch: int = 0, **options: Any) -> MapMaker:
    """A map of array `name`, shapes outermost first as NumPy has them; `pitch`: bytes of a row, if not packed."""

    def make(addresses: Mapping[str, int]) -> bytes:
        size = np.dtype(DTYPES.get(dtype, np.uint16)).itemsize
        dims = shape[::-1]
        strides = [pitch or size * int(np.prod(dims[: k + 1])) for k in range(len(dims) - 1)]
        return encode_tiled(dtype=dtype, address=addresses[name], global_dim=dims, global_strides=strides,
                            box_dim=box[::-1], **options)  # fmt: skip

    return make


def cut(data: Array, start: Shape, box: Shape, steps: Shape | None = None, fill: Any = 0) -> Array:
    """The box of `data` at `start`, element by element, `fill` where it lies outside."""
    steps = steps or (1,) * len(box)
    counts = tuple(-(-n // s) for n, s in zip(box, steps, strict=True))
    out = np.full(counts, fill, data.dtype)
    for index in np.ndindex(*counts):
        at = tuple(x + i * s for x, i, s in zip(start, index, steps, strict=True))
        if all(0 <= a < n for a, n in zip(at, data.shape, strict=True)):
            out[index] = data[at]
    return out


def swizzle_bytes(linear: Array, mode: str) -> Array:
    """Bytes as they lie in shared memory (1024-byte aligned), by the pattern tables of PTX ISA 5.5.7."""
    flat = linear.reshape(-1).view(np.uint8)
    at = np.arange(flat.size)
    row, column = at // 128, at % 128
    if mode in ("32B", "64B", "128B"):
        chunks = {"32B": 2, "64B": 4, "128B": 8}[mode]
        # The row of the repeating pattern counts spans of 128 bytes; chunks of 16 bytes move within the span.
        chunk = column // 16
        moved = chunk // chunks * chunks + ((chunk % chunks) ^ (row % chunks))
        target = row * 128 + moved * 16 + column % 16
    elif mode.startswith("128B_atom_32B"):
        target = row * 128 + ((column // 32) ^ (row % 4)) * 32 + column % 32
        if mode.endswith("8B"):
            target = np.where(row % 2 == 1, target ^ 8, target)
    elif mode == "128B_atom_64B":
        target = row * 128 + ((column // 64) ^ (row % 2)) * 64 + column % 64
    else:
        target = at
    out = np.empty_like(flat)
    out[target] = flat
    return out


COPY_OUT = """
mov.u32 %r50, tile; mov.u32 %r51, 0;
COPY:
shl.b32 %r52, %r51, 4; add.u32 %r53, %r50, %r52; cvt.u64.u32 %d20, %r52; add.u64 %d21, %out, %d20;
ld.shared.v4.u32 {{%r54, %r55, %r56, %r57}}, [%r53]; st.global.v4.u32 [%d21], {{%r54, %r55, %r56, %r57}};
add.u32 %r51, %r51, 1; setp.lt.u32 %p14, %r51, {chunks}; @%p14 bra COPY;
"""


CLEAR = """
mov.u32 %r50, tile; mov.u32 %r51, 0;
CLEAR:
shl.b32 %r52, %r51, 4; add.u32 %r53, %r50, %r52; st.shared.v4.u32 [%r53], {{0, 0, 0, 0}};
add.u32 %r51, %r51, 1; setp.lt.u32 %p14, %r51, {chunks}; @%p14 bra CLEAR;
fence.proxy.async.shared::cta;
"""


def load(data: Array, dtype: str, box: Shape, start: Shape, span: int = 0, **options: Any) -> Array:
    """The bytes that a tensor load leaves in shared memory, which was zero; `span`: of a row, if it is not packed."""
    steps = options.get("element_strides")
    counts = [-(-n // s) for n, s in zip(box[::-1], steps or [1] * len(box), strict=True)]
    size = data.itemsize * int(np.prod(counts))
    region = size // (box[-1] * data.itemsize) * span or size
    coordinates = ", ".join(str(x) for x in start[::-1])
    body = f"""
    {init_barriers(1)} {CLEAR.format(chunks=region // 16)}
    mov.u32 %r9, bar; mov.u32 %r8, tile;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size};
    cp.async.bulk.tensor.{len(box)}d.shared::cta.global.tile.mbarrier::complete_tx::bytes
        [%r8], [%map, {{{coordinates}}}], [%r9];
    {wait()}
    {COPY_OUT.format(chunks=region // 16)}
    """
    out = np.zeros(region, np.uint8)
    maps = {"map": tiled("data", data.shape, box, dtype, **options)}
    return run(body, {"data": data, "out": out}, maps, block=1).clean().arrays["out"]


def numbers(shape: Shape, dtype: type) -> Array:
    return (np.arange(np.prod(shape)) % 251 + 1).astype(dtype).reshape(shape)


FILL = """
mov.u32 %r40, tile; mov.u32 %r41, 0;
FILL:
shl.b32 %r42, %r41, 2; add.u32 %r43, %r40, %r42; cvt.u64.u32 %d18, %r42; add.u64 %d19, %data, %d18;
ld.global.u32 %r44, [%d19]; st.shared.u32 [%r43], %r44;
add.u32 %r41, %r41, 1; setp.lt.u32 %p13, %r41, {words}; @%p13 bra FILL;
"""
FENCE = "fence.proxy.async.shared::cta;\n"
STORED = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n"


def store(data: Array, out: Array, dtype: str, box: Shape, start: Shape, op: str = "", **options: Any) -> Array:
    """`out` after shared memory that holds the bytes of `data` has been stored through a map of it, or of a `shape` of
    it."""
    coordinates = ", ".join(str(x) for x in start[::-1])
    name = (
        f"cp.reduce.async.bulk.tensor.{len(box)}d.global.shared::cta.{op}.tile"
        if op
        else (f"cp.async.bulk.tensor.{len(box)}d.global.shared::cta.tile")
    )
    body = f"""
    {FILL.format(words=data.nbytes // 4)} {FENCE}
    {name}.bulk_group [%map, {{{coordinates}}}], [%r40];
    {STORED}
    """
    maps = {"map": tiled("out", options.pop("shape", out.shape), box, dtype, **options)}
    return run(body, {"data": data, "out": out}, maps, block=1).clean().arrays["out"]


def paste(out: Array, data: Array, start: Shape, combine: Any = None) -> Array:
    out = out.copy()
    for index in np.ndindex(*data.shape):
        at = tuple(x + i for x, i in zip(start, index, strict=True))
        if all(0 <= a < n for a, n in zip(at, out.shape, strict=True)):
            out[at] = data[index] if combine is None else combine(out[at], data[index])
    return out
