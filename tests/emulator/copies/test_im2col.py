"""im2col tensor copies against a loop over pixels (PTX ISA 5.5.4), and a convolution by them against NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fmha.emulator import TensorMapError, encode_im2col, tensormap
from fmha.emulator.tensormap_rules import Im2col
from tests.emulator.bulk_rig import CLEAR, COPY_OUT, FENCE, FILL, STORED, Array, Shape, numbers, swizzle_bytes
from tests.emulator.clusterlab import MapMaker, Run, init_barriers, run, wait

LOADED = "mbarrier::complete_tx::bytes"


def im2col(name: str, shape: Shape, lower: Shape, upper: Shape, channels: int, pixels: int, **options: Any) -> MapMaker:
    """A map of the float32 array `name` of shape (N, [D, [H,]] W, C); corners and element strides W first."""

    def make(addresses: Mapping[str, int]) -> bytes:
        dims = shape[::-1]
        strides = [4 * int(np.prod(dims[: k + 1])) for k in range(len(dims) - 1)]
        return encode_im2col(
            dtype="f32", address=addresses[name], global_dim=dims, global_strides=strides,
            pixel_box_lower_corner=lower, pixel_box_upper_corner=upper, channels_per_pixel=channels,
            pixels_per_column=pixels, **options,
        )  # fmt: skip

    return make


def walk(shape: Shape, lower: Shape, upper: Shape, steps: Shape, start: Shape, count: int) -> list[Shape]:
    """`count` pixels (n, ..., w) from `start` on, innermost first, through the bounding box."""
    spatial = shape[1:-1][::-1]
    last = [size - 1 + u for size, u in zip(spatial, upper, strict=True)]
    at, n, out = list(start[:0:-1]), start[0], []
    for _ in range(count):
        out.append((n, *at[::-1]))
        for d in range(len(at)):
            at[d] += steps[d]
            if at[d] <= last[d]:
                break
            at[d] = lower[d]
        else:
            n += 1
    return out


def gathered(data: Array, pixels: list[Shape], offsets: Shape, first: int, channels: int, fill: float = 0) -> Array:
    out = np.full((len(pixels), channels), fill, data.dtype)
    for row, (n, *at) in enumerate(pixels):
        where = [n, *(x + o for x, o in zip(at, offsets[::-1], strict=True))]
        if all(0 <= x < size for x, size in zip(where, data.shape, strict=False)):
            part = data[tuple(where)][first : first + channels]
            out[row, : len(part)] = part
    return out


def load(data: Array, make: MapMaker, start: Shape, offsets: Shape, first: int, size: int, form: str = "") -> Run:
    coordinates = ", ".join(map(str, (first, *start[::-1])))
    body = f"""
    {init_barriers(1)} {CLEAR.format(chunks=size // 16)}
    mov.u32 %r9, bar; mov.u32 %r8, tile; mov.b16 %h1, 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size};
    cp.async.bulk.tensor.{data.ndim}d.shared::{"cluster" if form else "cta"}.global.im2col.{LOADED}{form}
        [%r8], [%map, {{{coordinates}}}], [%r9], {{{", ".join(map(str, offsets))}}}{", %h1" if form else ""};
    {wait()}
    {COPY_OUT.format(chunks=size // 16)}
    """
    return run(body, {"data": data, "out": np.zeros(size, np.uint8)}, {"map": make}, block=1)


CASES: dict[str, tuple[Shape, Shape, Shape, Shape, Shape, Shape]] = {
    # (shape, lower corner, upper corner, element strides of the spatial dimensions, start (n, ..., w), offsets W first)
    "whole rows": ((2, 4, 4, 8), (0, 0), (0, 0), (1, 1), (0, 0, 0), (0, 0)),
    "padding": ((2, 4, 4, 8), (-1, -1), (-1, -1), (1, 1), (0, -1, -1), (0, 0)),
    "a 3x3 filter, its last tap": ((2, 5, 6, 8), (-1, -1), (-1, -1), (1, 1), (0, -1, -1), (2, 2)),
    "in the middle of an image": ((3, 5, 6, 8), (-1, -1), (-1, -1), (1, 1), (1, 2, 3), (1, 0)),
    "strides": ((3, 7, 9, 8), (-1, -1), (-1, -1), (2, 2), (0, -1, -1), (1, 2)),
    "a row of its own stride": ((3, 6, 9, 8), (0, 0), (0, 0), (3, 1), (0, 1, 3), (0, 0)),
    "behind the last image": ((2, 4, 4, 8), (0, 0), (0, 0), (1, 1), (1, 2, 0), (0, 0)),
    "a box past the last pixel": ((2, 4, 4, 8), (-2, 0), (2, 1), (1, 1), (0, 3, 4), (0, 0)),
    "one dimension": ((3, 11, 8), (-2,), (-1,), (1,), (0, -2), (3,)),
    "three dimensions": ((2, 3, 4, 5, 8), (-1, 0, -1), (0, -1, -1), (1, 2, 1), (0, -1, 0, -1), (1, 1, 2)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("swizzle", ["none", "32B"])
def test_pixels(name: str, swizzle: str) -> None:
    shape, lower, upper, steps, start, offsets = CASES[name]
    data = numbers(shape, np.float32)
    pixels, channels = 24, 8
    make = im2col("data", shape, lower, upper, channels, pixels, swizzle=swizzle, element_strides=(1, *steps, 1))
    done = load(data, make, start, offsets, 0, pixels * channels * 4).clean()
    want = gathered(data, walk(shape, lower, upper, steps, start, pixels), offsets, 0, channels)
    np.testing.assert_array_equal(
        done.arrays["out"], swizzle_bytes(want, swizzle) if swizzle != "none" else want.view(np.uint8).reshape(-1)
    )


def test_channels_that_the_tensor_does_not_have_and_nan_for_what_is_outside() -> None:
    shape = (1, 3, 4, 12)
    data = numbers(shape, np.float32)
    make = im2col("data", shape, (-1, 0), (0, 0), 8, 12, oob_fill="nan")
    out = load(data, make, (0, 0, -1), (0, 0), 8, 12 * 32).clean().arrays["out"].view(np.float32).reshape(12, 8)
    want = gathered(data, walk(shape, (-1, 0), (0, 0), (1, 1), (0, 0, -1), 12), (0, 0), 8, 8, np.nan)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
    np.testing.assert_array_equal(out[~np.isnan(out)], want[~np.isnan(want)])


def test_multicast_takes_its_mask_behind_the_offsets() -> None:
    data = numbers((2, 4, 4, 8), np.float32)
    make = im2col("data", data.shape, (0, 0), (0, 0), 8, 16)
    done = load(data, make, (1, 0, 0), (1, 0), 0, 512, ".multicast::cluster").clean()
    want = gathered(data, walk(data.shape, (0, 0), (0, 0), (1, 1), (1, 0, 0), 16), (1, 0), 0, 8)
    np.testing.assert_array_equal(done.arrays["out"].view(np.float32).reshape(16, 8), want)


def test_a_convolution() -> None:
    """3 x 3, padded by one, every tap a load of all output pixels, weighted and summed outside."""
    rng = np.random.default_rng(0)
    data, weights = rng.standard_normal((2, 4, 6, 4)).astype(np.float32), rng.standard_normal((3, 3, 4))
    make = im2col("data", data.shape, (-1, -1), (-1, -1), 4, 48)
    total = np.zeros(48)
    for r in range(3):
        for s in range(3):
            tap = load(data, make, (0, -1, -1), (s, r), 0, 48 * 16).clean().arrays["out"].view(np.float32)
            total += tap.reshape(48, 4) @ weights[r, s]
    padded = np.pad(data.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = sum(padded[:, r : r + 4, s : s + 6] @ weights[r, s] for r in range(3) for s in range(3))
    np.testing.assert_allclose(total, want.reshape(-1), rtol=1e-6)


def _store(out: Array, lower: Shape, start: Shape) -> Run:
    body = f"""{FILL.format(words=96)} {FENCE}
    cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group
        [%map, {{{", ".join(map(str, (0, *start)))}}}], [%r40]; {STORED}"""
    maps = {"map": im2col("out", out.shape, lower, (0, 0), 8, 12)}
    return run(body, {"data": numbers((12, 8), np.float32), "out": out}, maps, block=1)


def test_stores_have_no_offsets() -> None:
    """What lies behind the tensor is dropped."""
    data, out = numbers((12, 8), np.float32), np.zeros((1, 3, 4, 8), np.float32)
    got = _store(out, (0, 0), (1, 1, 0)).clean().arrays["out"]
    want = out.copy()
    for row, (n, y, x) in enumerate(walk(out.shape, (0, 0), (0, 0), (1, 1), (0, 1, 1), 12)):
        if 0 <= x < 4 and 0 <= y < 3 and n == 0:
            want[n, y, x] = data[row]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("lower", "start"), [((-1, 0), (0, 0, 0)), ((0, -1), (0, 0, 0)), ((-1, 0), (-1, 0, 0))])
def test_silicon_refuses_stores_of_padding(lower: Shape, start: Shape) -> None:
    """tests/probes/im2col.py: an H200 takes them for an illegal instruction, whichever pixels they come to."""
    assert _store(np.zeros((1, 3, 4, 8), np.float32), lower, start).rules == {"tensor-coordinate"}


@pytest.mark.parametrize(
    ("start", "rule"),
    [((0, 0, 0), None), ((0, 0, -1), "tensor-coordinate"), ((0, 4, 0), "tensor-coordinate"), ((-1, 0, 0), None)],
)
def test_the_first_pixel_lies_in_the_bounding_box(start: Shape, rule: str | None) -> None:
    data = numbers((2, 4, 4, 8), np.float32)
    done = load(data, im2col("data", data.shape, (0, 0), (0, 0), 8, 16), start, (0, 0), 0, 512)
    assert done.rules == ({rule} if rule else set())


def test_maps_and_copies_of_the_other_mode() -> None:
    data = numbers((2, 4, 4, 8), np.float32)
    make = im2col("data", data.shape, (0, 0), (0, 0), 8, 16)
    for text in (
        "cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%map, {0, 0, 0, 0}];",
        "cp.async.bulk.prefetch.tensor.3d.L2.global.im2col [%map, {0, 0, 0}], {%h1};",
        "mov.u32 %r1, 8; tensormap.replace.tile.box_dim.global.b1024.b32 [%data], 1, %r1;",
    ):
        array = data
        if "replace" in text:
            array = np.frombuffer(make({"data": 4096}), np.uint8).copy()
        done = run("mov.b16 %h1, 0;" + text, {"data": array}, {"map": make}, block=1)
        assert done.rules == {"tensormap-replace" if "replace" in text else "tensor-map"}, text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"global_dim": (8, 4), "global_strides": (32,)}, "rank is 2: must be in 3..5"),
        ({"pixel_box_lower_corner": (-129, 0)}, "2 entries in -128..127"),
        ({"pixel_box_upper_corner": (0,)}, "pixel_box_upper_corner"),
        ({"channels_per_pixel": 264}, "must be in 1..256"),
        ({"channels_per_pixel": 6}, "multiple of 16 bytes"),
        ({"pixels_per_column": 1025}, "must be in 1..1024"),
        ({"swizzle": "32B", "channels_per_pixel": 16}, "at most 32 bytes"),
        ({"element_strides": (1, 9, 1, 1)}, "must be in 1..8"),
    ],
)
def test_what_the_driver_refuses(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "dtype": "f32", "address": 4096, "global_dim": (32, 4, 4, 2), "global_strides": (128, 512, 2048),
        "pixel_box_lower_corner": (0, 0), "pixel_box_upper_corner": (0, 0), "channels_per_pixel": 8,
        "pixels_per_column": 16,
    }  # fmt: skip
    encode_im2col(**good)
    with pytest.raises(TensorMapError, match=message):
        encode_im2col(**good | change)


@pytest.mark.parametrize(
    ("rank", "lower", "upper"),
    [(3, (-32768,), (32767,)), (4, (-128, 127), (3, -1)), (5, (-16, 15, -1), (0, -5, 7))],
)
def test_the_encoding_keeps_everything(rank: int, lower: Shape, upper: Shape) -> None:
    dims = (64, 9, 8, 7, 6)[:rank]
    strides = tuple(256 * 10**d for d in range(rank - 1))
    raw = encode_im2col(
        dtype="f32", address=1 << 40, global_dim=dims, global_strides=strides, pixel_box_lower_corner=lower,
        pixel_box_upper_corner=upper, channels_per_pixel=32, pixels_per_column=1000,
        element_strides=(1, *range(2, rank), 1), swizzle="128B", oob_fill="nan",
    )  # fmt: skip
    tensor = tensormap.decode(raw)
    assert tensor.im2col == Im2col(lower, upper, 32, 1000)
    assert tensor.element_strides == (1, *range(2, rank), 1)
    assert (tensor.global_dim, tensor.global_strides, tensor.box_dim) == (dims, strides, ())
