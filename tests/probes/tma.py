"""Cases of tma.cu: boxes in and across every bound, swizzles, element strides, stores, reductions, bulk copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from tests.probes.case import Array, Case, Im2col, In, Out, Tensor, hashed, hashed32

_BYTES = {"u8": 1, "u16": 2, "bf16": 2, "f16": 2, "u32": 4, "s32": 4, "f32": 4, "u64": 8, "f64": 8}


def random_bytes(nbytes: int, salt: int) -> Array:
    return hashed(nbytes // 8 + 1, salt).view(np.uint8)[:nbytes].copy()


def _finite(nbytes: int, dtype: str, salt: int) -> Array:
    """Small whole numbers: sums are exact in every format."""
    values = (hashed32(nbytes // _BYTES[dtype], salt) % np.uint32(61)).astype(np.int32) - 30
    if dtype in ("f32", "f64"):
        return values.astype(np.float32 if dtype == "f32" else np.float64).view(np.uint8)
    if dtype == "f16":
        return values.astype(np.float16).view(np.uint8)
    if dtype == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(np.uint8)
    return random_bytes(nbytes, salt)


def tensor(
    dtype: str,
    dims: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: str,
    steps: tuple[int, ...] | None,
    data: Array | None,
    out: bool,
    oob: str = "none",
    im2col: Im2col | None = None,
) -> Tensor:
    """Over a buffer of its own, of `data` or of hashed bytes, with some padding behind rows."""
    strides, row = [], -(-dims[0] * _BYTES[dtype] // 16) * 16 + 16 * (len(dims) > 2)
    for n in dims[1:]:
        strides.append(row)
        row *= n
    nbytes = strides[-1] * dims[-1] if strides else row
    data = random_bytes(nbytes, 7) if data is None else data[:nbytes]
    return Tensor(data, dtype, dims, tuple(strides), box, steps or (1,) * len(dims), swizzle, oob, out, im2col)


def _elements(box: tuple[int, ...], steps: tuple[int, ...] | None) -> int:
    """Elements that a box puts in shared memory; the innermost step is ignored without interleave."""
    steps = (1, *(steps or (1,) * len(box))[1:])
    return prod(-(-b // s) for b, s in zip(box, steps, strict=True))


def _region(box: tuple[int, ...], dtype: str, swizzle: str, nbytes: int) -> int:
    """Shared memory to look at: a row shorter than the swizzle's span takes the span all the same."""
    span = {"none": 0, "32B": 32, "64B": 64, "128B": 128}[swizzle]
    row = box[0] * _BYTES[dtype]
    return -(-nbytes * max(span, row) // row // 128) * 128 + 1024


def coordinates(at: tuple[int, ...]) -> bytes:
    return np.array([*at, 0, 0, 0, 0][:5], np.int32).tobytes()


# name, dtype, dims, box, swizzle, steps, coordinates
_Shape = tuple[str, str, tuple[int, ...], tuple[int, ...], str, tuple[int, ...] | None, Sequence[tuple[int, ...]]]
_LINE = [(0,), (-16,), (144,), (192,), (208,), (-64,), (-2147483648,), (2147483632,), (137,), (-1,)]
# The innermost coordinate times the element is a multiple of 16 bytes: an H200 takes any other for an illegal
# instruction, as the odd last place of some shapes shows. It also refuses stores with a negative coordinate.
_PLANE = [(0, 0), (-8, -3), (80, 36), (200, 0), (0, -8), (8, 39), (-64, 5), (16, 40), (33, 1)]
SHAPES: list[_Shape] = [
    ("u8", "u8", (200,), (64,), "none", None, _LINE),
    ("f32", "f32", (77,), (16,), "none", None, [(0,), (-4,), (68,), (76,), (80,), (70,)]),
    ("u64", "u64", (40,), (16,), "none", None, [(0,), (-6,), (34,), (33,)]),
    ("128B", "bf16", (96, 40), (64, 8), "128B", None, _PLANE),
    ("64B", "bf16", (96, 40), (32, 8), "64B", None, _PLANE),
    ("32B", "bf16", (96, 40), (16, 8), "32B", None, _PLANE),
    ("plain", "bf16", (96, 40), (24, 5), "none", None, _PLANE),
    ("128B_narrow", "bf16", (96, 40), (40, 8), "128B", None, [(0, 0), (-8, 36), (80, 1)]),
    ("64B_narrow", "u8", (96, 40), (16, 16), "64B", None, [(0, 0), (-16, 30), (80, 1)]),
    ("128B_f32", "f32", (50, 30), (32, 16), "128B", None, [(0, 0), (32, 20), (-4, -9)]),
    ("128B_u8", "u8", (300, 30), (128, 16), "128B", None, [(0, 0), (256, 20), (-32, -9)]),
    ("step", "f32", (50, 30), (16, 12), "none", (1, 3), [(0, 0), (40, 20), (-4, -4), (4, 2)]),
    ("step_uneven", "f32", (50, 30), (16, 11), "none", (1, 4), [(0, 0), (40, 22), (-4, -5)]),
    ("step_128B", "bf16", (96, 40), (64, 16), "128B", (1, 2), [(0, 0), (48, 31), (-16, -7)]),
    ("step_inner", "f32", (50, 30), (16, 8), "none", (2, 1), [(0, 0), (40, 25)]),
    ("3d", "bf16", (40, 9, 7), (32, 4, 3), "64B", None, [(0, 0, 0), (-8, -2, -1), (24, 7, 5), (0, 0, 7)]),
    ("3d_step", "u16", (40, 9, 12), (8, 6, 9), "none", (1, 2, 3), [(0, 0, 0), (-8, -2, -1), (32, 7, 5)]),
    ("4d", "u8", (70, 6, 5, 4), (32, 3, 2, 3), "32B", None,
     [(0, 0, 0, 0), (-16, -1, -1, -2), (48, 4, 4, 3), (16, 1, 2, -3)]),
    ("5d", "f32", (20, 5, 4, 3, 3), (8, 2, 3, 2, 2), "none", None,
     [(0, 0, 0, 0, 0), (-4, -1, -2, -1, -1), (16, 4, 2, 2, 2), (4, 1, 1, 1, 3)]),
    ("5d_128B", "bf16", (80, 5, 4, 3, 3), (64, 2, 2, 2, 2), "128B", None, [(0, 0, 0, 0, 0), (40, 4, -1, 2, -1)]),
]  # fmt: skip


def _loads() -> Iterator[Case]:
    for name, dtype, dims, box, swizzle, steps, places in SHAPES:
        nbytes = _elements(box, steps) * _BYTES[dtype]
        # The pattern of a swizzle hangs on the address: the same box at other multiples of 128 bytes.
        offsets = (0, 128, 640) if name in ("128B", "64B", "32B") else (0,)
        region = _region(box, dtype, swizzle, nbytes)
        for place in places:
            for at in offsets if place == places[1] else offsets[:1]:
                copied = tensor(dtype, dims, box, swizzle, steps, None, False)
                where = "_".join(map(str, place)) + (f"@{at}" if at else "")
                args = (copied, coordinates(place), at, nbytes, region, Out(np.zeros(region + 16, np.uint8)))
                yield Case(
                    f"tma/load_{name}/{where}", "tma", f"load_{len(dims)}d", args, block=(1, 1, 1), shared=region
                )
    for dtype in ("f32", "bf16", "f16", "f64"):
        copied = tensor(dtype, (20, 9), (16, 4), "none", None, None, False, "nan")
        nbytes = 64 * _BYTES[dtype]
        args = (copied, coordinates((-16 // _BYTES[dtype], 7)), 0, nbytes, 1024, Out(np.zeros(1040, np.uint8)))
        yield Case(f"tma/load_nan_fill/{dtype}", "tma", "load_2d", args, block=(1, 1, 1), shared=1024)


def _stores() -> Iterator[Case]:
    for name, dtype, dims, box, swizzle, steps, places in SHAPES:
        nbytes = _elements(box, steps) * _BYTES[dtype]
        region = _region(box, dtype, swizzle, nbytes)
        faults = 0
        for place in places:
            negative, odd = min(place) < 0, place[0] * _BYTES[dtype] % 16
            faults += bool(negative or odd)
            if faults > 2 and (negative or odd):  # each costs the GPU a context
                continue
            copied = tensor(dtype, dims, box, swizzle, steps, None, True)
            args = (copied, coordinates(place), 0, region, In(random_bytes(region, 21)))
            where = "_".join(map(str, place))
            yield Case(f"tma/store_{name}/{where}", "tma", f"store_{len(dims)}d", args, block=(32, 1, 1), shared=region)


def _reductions() -> Iterator[Case]:
    kinds = [(op, t) for op in ("add", "min", "max") for t in ("u32", "s32", "u64", "f16", "bf16")]
    kinds += [("add", "f32"), ("inc", "u32"), ("dec", "u32")] + [
        (op, t) for op in ("and", "or", "xor") for t in ("u32", "u64")
    ]
    for op, dtype in kinds:
        inner = 64 // _BYTES[dtype]
        for place in ((0, 1), (16 // _BYTES[dtype], 3)):
            data = _finite(4096, dtype, 31)
            copied = tensor(dtype, (inner + 4, 6), (inner, 4), "none", None, data, True)
            args = (copied, coordinates(place), 0, 1024, In(_finite(1024, dtype, 32)))
            where = "_".join(map(str, place))
            yield Case(
                f"tma/reduce_{op}_{dtype}/{where}", "tma", f"reduce_{op}_2d", args, block=(32, 1, 1), shared=1024
            )


def _bulk() -> Iterator[Case]:
    for at, size in ((0, 16), (16, 48), (128, 1024), (240, 528)):
        args = (In(random_bytes(2048, 41)), at, size, 1536, Out(np.zeros(1552, np.uint8)))
        yield Case(f"tma/bulk_load/{size}@{at}", "tma", "bulk_load", args, block=(1, 1, 1), shared=2048)
        for entry, dtype in (
            ("bulk_store", "u8"),
            ("bulk_add_u32", "u32"),
            ("bulk_min_s32", "s32"),
            ("bulk_add_f32", "f32"),
            ("bulk_add_f16", "f16"),
            ("bulk_add_bf16", "bf16"),
        ):
            data, given = _finite(2048, dtype, 42), _finite(1536, dtype, 43)
            yield Case(
                f"tma/{entry}/{size}@{at}",
                "tma",
                entry,
                (Out(data), at, size, 1536, In(given)),
                block=(32, 1, 1),
                shared=2048,
            )


def cases() -> Iterator[Case]:
    yield from _loads()
    yield from _stores()
    yield from _reductions()
    yield from _bulk()
