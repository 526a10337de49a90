"""Cases of im2col.cu: pixels along rows, over images and their ends, around them, with steps, swizzled; stores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.probes.case import Case, Im2col, In, Out, Tensor
from tests.probes.tma import coordinates, random_bytes, tensor

_BYTES = {"bf16": 2, "f32": 4, "u8": 1}
# name, dtype, dims (C, W, ..., N), Im2col, swizzle, steps, places: coordinates and offsets
_Place = tuple[tuple[int, ...], tuple[int, ...]]
_Shape = tuple[str, str, tuple[int, ...], Im2col, str, tuple[int, ...] | None, list[_Place]]
SHAPES: list[_Shape] = [
    ("3d", "f32", (16, 20, 3), Im2col((-1,), (-1,), 8, 12), "none", None,
     [((0, -1, 0), (0,)), ((0, -1, 0), (2,)), ((8, 5, 0), (1,)),
      ((0, 15, 1), (0,)), ((12, 10, 2), (2,)), ((0, 18, 2), (1,))]),
    ("3d_filter_5", "bf16", (24, 20, 3), Im2col((-2,), (-2,), 16, 40), "32B", None,
     [((0, -2, 0), (0,)), ((8, -2, 0), (4,)), ((16, 3, 1), (2,))]),
    ("4d", "bf16", (24, 9, 7, 3), Im2col((-1, -1), (-1, -1), 16, 24), "none", None,
     [((0, -1, -1, 0), (0, 0)), ((0, -1, -1, 0), (2, 1)), ((8, 3, 2, 0), (1, 2)), ((0, 6, 5, 0), (1, 1)),
      ((16, 2, 4, 2), (0, 2)), ((0, 7, 5, 2), (2, 2)), ((-8, 0, 0, 1), (1, 1))]),
    ("4d_valid", "f32", (8, 9, 7, 2), Im2col((0, 0), (-2, -2), 8, 17), "none", None,
     [((0, 0, 0, 0), (0, 0)), ((0, 0, 0, 0), (2, 2)), ((0, 4, 4, 0), (1, 0)), ((4, 6, 4, 1), (2, 1))]),
    ("4d_dilated", "f32", (8, 11, 9, 2), Im2col((-2, -1), (-2, -3), 4, 30), "none", None,
     [((0, -2, -1, 0), (0, 0)), ((4, 1, 2, 0), (4, 4)), ((0, 7, 3, 1), (2, 2))]),
    ("4d_step", "bf16", (16, 11, 9, 3), Im2col((-1, -1), (-1, -1), 16, 20), "none", (1, 2, 2, 1),
     [((0, -1, -1, 0), (0, 0)), ((0, -1, -1, 0), (2, 2)), ((0, 3, 3, 1), (1, 0)), ((8, 7, 5, 2), (0, 1))]),
    ("4d_step_uneven", "f32", (8, 10, 8, 2), Im2col((0, -1), (-1, 0), 8, 16), "none", (1, 3, 2, 1),
     [((0, 0, -1, 0), (0, 0)), ((0, 3, 1, 0), (1, 1)), ((0, 6, 5, 1), (0, 1))]),
    ("4d_128B", "bf16", (80, 9, 7, 2), Im2col((-1, -1), (-1, -1), 64, 32), "128B", None,
     [((0, -1, -1, 0), (1, 1)), ((64, 4, 3, 0), (0, 2)), ((16, 6, 5, 1), (2, 2))]),
    ("4d_64B", "bf16", (48, 9, 7, 2), Im2col((-1, -1), (-1, -1), 32, 32), "64B", None,
     [((0, -1, -1, 0), (1, 1)), ((32, 4, 3, 0), (0, 2))]),
    ("4d_128B_narrow", "bf16", (48, 9, 7, 2), Im2col((-1, -1), (-1, -1), 16, 32), "128B", None,
     [((0, -1, -1, 0), (1, 1)), ((32, 4, 3, 0), (0, 2))]),
    ("4d_u8", "u8", (64, 9, 7, 2), Im2col((-1, -1), (-1, -1), 32, 20), "none", None,
     [((0, -1, -1, 0), (1, 0)), ((48, 4, 3, 1), (2, 2))]),
    ("5d", "bf16", (16, 6, 5, 4, 2), Im2col((-1, -1, -1), (-1, -1, -1), 16, 50), "32B", None,
     [((0, -1, -1, -1, 0), (0, 0, 0)), ((0, -1, -1, -1, 0), (2, 1, 2)), ((8, 3, 2, 1, 0), (1, 2, 0)),
      ((0, 4, 3, 2, 1), (1, 1, 1))]),
    ("5d_step", "f32", (8, 6, 5, 4, 3), Im2col((0, -1, 0), (0, -1, -1), 8, 40), "none", (1, 2, 1, 2, 1),
     [((0, 0, -1, 0, 0), (0, 0, 0)), ((4, 2, 2, 2, 1), (0, 2, 1))]),
]  # fmt: skip


def _map(shape: _Shape, out: bool, oob: str = "none") -> Tensor:
    _, dtype, dims, im2col, swizzle, steps, _ = shape
    return tensor(dtype, dims, (), swizzle, steps, None, out, oob, im2col)


def _sizes(shape: _Shape) -> tuple[int, int]:
    """(bytes of a box, of shared memory looked at: a row shorter than the swizzle's span takes the span)."""
    _, dtype, _, im2col, swizzle, _, _ = shape
    row = im2col.channels * _BYTES[dtype]
    span = {"none": 0, "32B": 32, "64B": 64, "128B": 128}[swizzle]
    return row * im2col.pixels, -(-max(row, span) * im2col.pixels // 128) * 128 + 1024


def _where(place: _Place) -> str:
    return "_".join(map(str, place[0])) + "+" + "_".join(map(str, place[1]))


def _load(shape: _Shape, place: _Place, name: str, oob: str = "none") -> Case:
    start, offsets = place
    expected, region = _sizes(shape)
    at = coordinates(start) + np.array([*offsets, 0, 0][:3], np.uint16).tobytes() + bytes(2)
    args = (_map(shape, False, oob), at, expected, region, Out(np.zeros(region + 16, np.uint8)))
    return Case(name, "im2col", f"load_{len(start)}d", args, block=(1, 1, 1), shared=region)


def cases() -> Iterator[Case]:
    for shape in SHAPES:
        name, places = shape[0], shape[6]
        for place in places:
            yield _load(shape, place, f"im2col/load_{name}/{_where(place)}")
        _, region = _sizes(shape)
        for start, _ in places[:1]:
            inner = (start[0], *(max(x, 0) for x in start[1:]))
            args = (_map(shape, True), coordinates(inner), 0, region, In(random_bytes(region, 21)))
            where = "_".join(map(str, inner))
            yield Case(f"im2col/store_{name}/{where}", "im2col", f"store_{len(inner)}d", args, shared=region)
    for dtype in ("f32", "bf16"):
        shape = next(s for s in SHAPES if s[1] == dtype and len(s[2]) == 4)
        yield _load(shape, shape[6][1], f"im2col/load_nan_fill/{dtype}", "nan")
