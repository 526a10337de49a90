"""tex and tld4 against the formulas of the CUDA C++ programming guide (texture fetching), written out in NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha.emulator import Device, Image, ImageError, PtxError, Sampler, load_ptx
from fmha.emulator.texture_objects import Addressing, Texel
from tests.emulator.texture_filter import FORMATS, ONES, corner_weights, weighted_sum
from tests.emulator.texture_rig import filled, run

RNG = np.random.default_rng(7)
FETCHED = "{%r4, %r5, %r6, %r7}"
DTYPES = {"u8": np.uint8, "s8": np.int8, "u16": np.uint16, "s16": np.int16, "f16": np.float16}
DTYPES |= {"u32": np.uint32, "s32": np.int32, "f32": np.float32}


def elements(texel: str, *shape: int) -> NDArray[Any]:
    dtype = np.dtype(DTYPES[texel])
    if dtype.kind == "f":
        return RNG.integers(-64, 64, shape).astype(dtype)
    return RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def fetched(got: NDArray[np.uint32], texel: str, channels: int) -> NDArray[Any]:
    """The channels that there are; those that are not are 0."""
    kind = np.float32 if texel in ("f16", "f32") else np.int32 if texel[0] == "s" else np.uint32
    assert not got[:, channels:].any()
    return got.view(kind)[:, :channels]


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("texel", DTYPES)
def test_whole_numbers_fetch_from_linear_memory(texel: str, channels: int) -> None:
    """tex1Dfetch; what is outside is 0, whatever the addressing."""
    device = Device()
    data = elements(texel, 37, channels)
    image = Image(filled(device, data), texel, 37, channels=channels, linear=True)
    places = np.array([*range(37), -1, 37, 1000, -(2**31), 2**31 - 1, 12], np.int32)[:, None]
    type_name = {"f": "f32", "s": "s32", "u": "u32"}[texel[0]]
    body = f"tex.1d.v4.{type_name}.s32 {FETCHED}, [%t, {{%r0}}];"
    if type_name == "f32":
        body = "tex.1d.v4.f32.s32 {%f4, %f5, %f6, %f7}, [%t, {%r0}];" + "".join(
            f"mov.b32 %r{k}, %f{k};" for k in range(4, 8)
        )
    report, got = run(device, body, device.texture(image, Sampler(("wrap",))), places)
    assert not report.findings
    inside = (places[:, 0] >= 0) & (places[:, 0] < 37)
    wanted = np.where(inside[:, None], data[places[:, 0] % 37], 0)
    np.testing.assert_array_equal(fetched(got, texel, channels), wanted)


def wanted_index(x: NDArray[np.float64], size: int, mode: str) -> NDArray[Any]:
    """Where index floor(x) is taken from; -1 for the border."""
    i = np.floor(x).astype(np.int64)
    if mode == "clamp":
        return np.clip(i, 0, size - 1)
    if mode == "border":
        return np.where((i >= 0) & (i < size), i, -1)
    part = np.divmod(i, size)[1]
    odd = np.divmod(i, size)[0] % 2 == 1
    return np.where(odd & (mode == "mirror"), size - 1 - part, part)


def model(
    data: NDArray[Any], places: NDArray[np.float64], mode: str, filtered: bool, border: tuple[float, ...]
) -> NDArray[np.float64]:
    """`data` has axes z, y, x (those that there are) and channels; `places`, in elements, has x, y, z."""
    dimensions = places.shape[1]
    sizes = data.shape[:dimensions][::-1]
    if filtered:
        return filtered_model(data, places, mode, border)
    index = [wanted_index(places[:, d], sizes[d], mode) for d in range(dimensions)]
    return looked_up(data, index, border)


def looked_up(data: NDArray[Any], index: list[NDArray[Any]], border: tuple[float, ...]) -> NDArray[np.float64]:
    outside = np.any([i < 0 for i in index], axis=0)
    taken = data[tuple(np.maximum(i, 0) for i in reversed(index))].astype(np.float64)
    return np.where(outside[:, None], np.array(border[: data.shape[-1]]), taken)


def filtered_model(
    data: NDArray[Any], places: NDArray[np.float64], mode: str, border: tuple[float, ...], texel: str = "f32"
) -> NDArray[np.float64]:
    if places.shape[1] == 1:  # one row, of which the place is 0
        data, places = data[None], np.column_stack([places, np.zeros(len(places))])
    dimensions = places.shape[1]
    sizes = data.shape[:dimensions][::-1]
    x = places - 0.5
    if mode == "clamp":
        x = np.clip(x, 0, np.array(sizes) - 1)
    steps = np.floor(x * 256 + 0.5).astype(int)
    weights = [corner_weights(row) for row in (steps % 256).tolist()]
    around = []
    for corner in product((0, 1), repeat=dimensions):
        index = [wanted_index(steps[:, d] // 256 + corner[-1 - d], sizes[d], mode) for d in range(dimensions)]
        around.append(looked_up(data, index, border))
    around += [np.zeros_like(around[0])] * (8 - len(around))
    values = np.stack(around, axis=-1).tolist()
    return np.array(
        [[weighted_sum(v, w, texel) for v in channels] for channels, w in zip(values, weights, strict=True)]
    )


GEOMETRY = {1: ("1d", "%f0", (13,)), 2: ("2d", "%f0, %f1", (11, 7)), 3: ("3d", "%f0, %f1, %f2, %f2", (6, 5, 4))}


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_fetches_are_the_guides(dimensions: int, filtered: bool) -> None:
    """Every addressing, in elements and from 0 to 1. Coordinates are multiples of 1/256, which a filter has exactly."""
    name, coordinates, sizes = GEOMETRY[dimensions]
    body = f"tex.{name}.v4.f32.f32 {{%f4, %f5, %f6, %f7}}, [%t, {{{coordinates}}}];"
    body += "".join(f"mov.b32 %r{k}, %f{k};" for k in range(4, 8))
    border = (3.0, -2.0, 5.0, 7.0)
    for channels, normalized, mode in product((1, 4), (False, True), ("clamp", "border", "wrap", "mirror")):
        device = Device()
        data = elements("f32", *reversed(sizes), channels)
        width, height, depth = (*sizes, 0, 0)[:3]
        image = Image(filled(device, data), "f32", width, height, depth, channels=channels)
        # Elements of a power of two, so that 0 to 1 is exact as well.
        places = RNG.integers(-700, 256 * 17, (96, dimensions)) / 256
        given = places
        if normalized:
            places = RNG.integers(-700, 256 * 17, (96, dimensions)) * np.array(sizes) / 1024
            given = places / np.array(sizes)
        sampler = Sampler((mode,), filtered, normalized, border=border)
        report, got = run(device, body, device.texture(image, sampler), given.astype(np.float32))
        assert not report.findings
        used = mode if normalized or mode == "border" else "clamp"
        wanted = model(data, places, used, filtered, border)
        np.testing.assert_array_equal(got.view(np.float32)[:, :channels], wanted.astype(np.float32))


def rough(texel: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Elements of many magnitudes; of a row those in front are below a format's normal numbers."""
    if texel in ONES:
        return elements(texel, *shape)
    bits, least = FORMATS[texel]
    exponents = np.where(RNG.random(shape) < 0.4, RNG.integers(-6, 9, shape), 8)
    exponents[..., : shape[-2] // 2, :] = least - RNG.integers(0, 6)
    return (RNG.integers(-(2**bits), 2**bits, shape) * 2.0 ** (exponents - bits)).astype(DTYPES[texel])


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("texel", [*FORMATS, *ONES])
def test_filtered_sums_are_cut_and_rounded(texel: str, dimensions: int) -> None:
    device = Device()
    name, coordinates, sizes = GEOMETRY[dimensions]
    data = rough(texel, (*reversed(sizes), 2))
    width, height, depth = (*sizes, 0, 0)[:3]
    image = Image(filled(device, data), texel, width, height, depth, channels=2)  # type: ignore[arg-type]
    mode: Addressing = "clamp" if dimensions == 1 else "border"
    # 0.3 is half-way between two bytes and between two u16.
    border = (0.3, -2.0, 0.0, 0.0) if texel in ONES else (0.3125, 2.0, 0.0, 0.0)
    sampler = Sampler((mode,), filtered=True, scaled=texel in ONES, border=border)
    places = RNG.integers(-300, 256 * np.array(sizes) + 300, (256, dimensions)) / 256
    body = f"tex.{name}.v4.f32.f32 {{%f4, %f5, _, _}}, [%t, {{{coordinates}}}]; mov.b32 %r4, %f4; mov.b32 %r5, %f5;"
    report, got = run(device, body, device.texture(image, sampler), places.astype(np.float32))
    assert not report.findings
    if texel in ONES:
        least = -1 if texel.startswith("s") else 0
        border = tuple(np.rint(np.clip(np.float32(border), least, 1) * np.float32(ONES[texel])).tolist())
    wanted = filtered_model(data, places, mode, border, texel)
    np.testing.assert_array_equal(got.view(np.float32)[:, :2], wanted.astype(np.float32))


FILTERED_LINE = "tex.1d.v4.f32.f32 {%f4, _, _, _}, [%t, {%f0}]; mov.b32 %r4, %f4;"


def test_half_of_the_least_half_is_rounded_away_from_zero() -> None:
    device = Device()
    least = np.finfo(np.float16).smallest_subnormal
    data = np.array([least, 0, -least, -3 * least], np.float16)
    handle = device.texture(Image(filled(device, data), "f16", 4), Sampler(filtered=True))
    _, got = run(device, FILTERED_LINE, handle, np.array([[1.0], [2.0], [2.75]], np.float32))
    assert got.view(np.float32)[:, 0].tolist() == [least, -least, -2 * least]


@pytest.mark.parametrize(("sign", "wanted"), [(1, 1096), (-1, -1097)])
def test_the_finer_sum_of_two_planes_is_cut_downwards(sign: int, wanted: int) -> None:
    """The nearer plane's product is 1096.5 steps, and the other's is less than its last bit."""
    device = Device()
    data = sign * np.array([1.0625, -np.finfo(np.float16).smallest_subnormal], np.float16)
    handle = device.texture(Image(filled(device, data), "f16", 1, 1, 2), Sampler(filtered=True))
    body = "tex.3d.v4.f32.f32 {%f4, _, _, _}, [%t, {%f0, %f1, %f2, %f2}]; mov.b32 %r4, %f4;"
    _, got = run(device, body, handle, np.array([[0.5, 0.5, 0.5 + 127 / 256]], np.float32))
    assert got.view(np.float32)[0, 0] == wanted * 2.0**-11


def test_denormal_numbers_of_f32_are_zeros_with_a_sign() -> None:
    device = Device()
    normal = np.finfo(np.float32).smallest_normal
    data = np.array([-normal / 2, -normal / 4, normal / 2, -normal, -normal], np.float32)
    handle = device.texture(Image(filled(device, data), "f32", 5), Sampler(filtered=True))
    places = np.array([[0.5], [1.0], [2.0], [2.5], [3.0], [4.0]], np.float32)
    _, got = run(device, FILTERED_LINE, handle, places)
    assert got[:, 0].tolist() == [0x80000000, 0x80000000, 0, 0, 0x80000000, 0x80800000]


@pytest.mark.parametrize(("texel", "no_number"), [("f32", 0x7FFFFFFF), ("f16", 0x7FFFE000)])
def test_what_is_not_finite_stays_so_where_it_has_weight(texel: Texel, no_number: int) -> None:
    device = Device()
    data = np.array([1, np.inf, -np.inf, 2, np.nan, 3], DTYPES[texel])
    handle = device.texture(Image(filled(device, data), texel, 6), Sampler(filtered=True))
    places = np.array([[0.5], [1.25], [2.0], [3.25], [3.5], [4.25], [5.5], [5.5 - 2**-10]], np.float32)
    _, got = run(device, FILTERED_LINE, handle, places)
    assert got.view(np.float32)[:, 0].tolist()[:2] == [1, np.inf]
    assert got[2, 0] == got[5, 0] == no_number
    assert got.view(np.float32)[[3, 4, 6, 7], 0].tolist() == [-np.inf, 2, 3, 3]


@pytest.mark.parametrize(
    ("lower_left", "others", "word"),
    [(np.nan, 1.0, 0x7FFFFFFF), (-np.inf, 1.0, 0xFF800000), (0.0, -0.0, 0), (-0.0, -0.0, 0x80000000)],
)
def test_an_element_whose_weight_is_rounded_to_0_counts(lower_left: float, others: float, word: int) -> None:
    """Of 1/256 along x and 124/256 along y."""
    device = Device()
    data = np.array([[others, others], [lower_left, others]], np.float32)
    handle = device.texture(Image(filled(device, data), "f32", 2, 2), Sampler(filtered=True))
    body = "tex.2d.v4.f32.f32 {%f4, _, _, _}, [%t, {%f0, %f1}]; mov.b32 %r4, %f4;"
    _, got = run(device, body, handle, np.array([[0.5 + 255 / 256, 0.5 + 124 / 256]], np.float32))
    assert got[0, 0] == word


def test_a_half_that_is_no_number_keeps_its_bits() -> None:
    device = Device()
    handle = device.texture(Image(filled(device, np.array([0x7D7C, 0xFFFE], np.uint16)), "f16", 2))
    body = "tex.1d.v4.f32.f32 {%f4, _, _, _}, [%t, {%f0}]; mov.b32 %r4, %f4;"
    _, got = run(device, body, handle, np.array([[0.5], [1.5]], np.float32))
    assert got[:, 0].tolist() == [0x7FAF8000, 0xFFFFC000]


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize(("texel", "one"), ONES.items())
def test_integers_are_read_as_fractions(texel: Texel, one: int, filtered: bool) -> None:
    device = Device()
    data = elements(texel, 8, 16, 2)
    data[0, 0] = np.iinfo(DTYPES[texel]).min
    data[0, 1] = np.iinfo(DTYPES[texel]).min // 2
    image = Image(filled(device, data), texel, 16, 8, channels=2)
    places = np.array([(x + 0.5, y + 0.5) for y in range(8) for x in range(16)], np.float32)
    body = "tex.2d.v4.f32.f32 {%f4, %f5, _, _}, [%t, {%f0, %f1}]; mov.b32 %r4, %f4; mov.b32 %r5, %f5;"
    _, got = run(device, body, device.texture(image, Sampler(scaled=True, filtered=filtered)), places)
    wanted = data.reshape(-1, 2).astype(np.float64) / one
    if filtered and texel == "s8":
        sums = np.rint(wanted * 32767)
        sums[data.reshape(-1, 2) == -64] = -16512  # an H100's, of all 256 integers the one that is not the nearest
        wanted = sums / 32767
    np.testing.assert_array_equal(got.view(np.float32)[:, :2], np.maximum(wanted, -1).astype(np.float32))


def test_layers_are_their_own_and_end_with_the_last() -> None:
    device = Device()
    data = elements("s32", 3, 5, 7)
    image = Image(filled(device, data), "s32", 7, 5, layers=3)
    given = np.zeros((40, 3), np.uint32)
    given[:, 0] = np.arange(40) % 5
    given[:, 1:] = RNG.integers(0, 5, (40, 2)).astype(np.float32).view(np.uint32)
    body = f"tex.a2d.v4.s32.f32 {FETCHED}, [%t, {{%r0, %f1, %f2, %f2}}];"
    _, got = run(device, body, device.texture(image), given)
    x, y = given[:, 1:].view(np.float32).astype(int).T
    np.testing.assert_array_equal(got.view(np.int32)[:, 0], data[np.minimum(given[:, 0], 2).astype(int), y, x])


def test_rows_of_a_pitch_and_one_layer_of_a_line() -> None:
    device = Device()
    padded = elements("u16", 4, 32)
    image = Image(filled(device, padded), "u16", 20, 4, pitch=64)
    places = np.array([(19.25, 3.75), (0, 0), (25, 2)], np.float32)
    _, got = run(device, f"tex.2d.v4.u32.f32 {FETCHED}, [%t, {{%f0, %f1}}];", device.texture(image), places)
    assert got[:, 0].tolist() == [padded[3, 19], padded[0, 0], padded[2, 19]]
    lines = elements("f32", 3, 8)
    image = Image(filled(device, lines), "f32", 8, layers=3)
    given = np.array([[1, np.float32(6.5).view(np.uint32)]], np.uint32)
    body = "tex.a1d.v4.f32.f32 {%f4, _, _, _}, [%t, {%r0, %f1}]; mov.b32 %r4, %f4;"
    assert run(device, body, device.texture(image), given)[1].view(np.float32)[0, 0] == lines[1, 6]


@pytest.mark.parametrize(("component", "channel"), [("r", 0), ("g", 1), ("b", 2), ("a", 3)])
def test_gathering_brings_one_channel_of_four_elements(component: str, channel: int) -> None:
    device = Device()
    data = elements("u8", 6, 9, 4)
    image = Image(filled(device, data), "u8", 9, 6, channels=4)
    places = (RNG.integers(-256, 256 * 11, (64, 2)) / 256).astype(np.float32)
    body = f"tld4.{component}.2d.v4.u32.f32 {FETCHED}, [%t, {{%f0, %f1}}];"
    _, got = run(device, body, device.texture(image), places)
    x, y = np.floor(places.T - 0.5).astype(int)
    for k, (dx, dy) in enumerate(((0, 1), (1, 1), (1, 0), (0, 0))):
        wanted = data[np.clip(y + dy, 0, 5), np.clip(x + dx, 0, 8), channel]
        np.testing.assert_array_equal(got[:, k], wanted)


def test_a_level_or_gradients_change_nothing_without_mipmaps() -> None:
    device = Device()
    data = elements("f32", 6, 9)
    handle = device.texture(Image(filled(device, data), "f32", 9, 6), Sampler(filtered=True))
    places = (RNG.integers(0, 256 * 9, (32, 2)) / 256).astype(np.float32)
    ends = " mov.b32 %r4, %f4;"
    plain, level, gradient = (
        run(device, f"tex{form}.2d.v4.f32.f32 {{%f4, %f5, %f6, %f7}}, [%t, {{%f0, %f1}}]{more};{ends}", handle, places)[
            1
        ]
        for form, more in (("", ""), (".level", ", %f2"), (".grad", ", {%f0, %f1}, {%f1, %f0}"))
    )
    assert plain.any()
    assert (plain == level).all()
    assert (plain == gradient).all()


def test_coordinates_that_are_no_numbers_are_0() -> None:
    device = Device()
    data = elements("f32", 8)
    places = np.array([[np.nan], [np.inf], [-np.inf]], np.float32)
    body = "tex.1d.v4.f32.f32 {%f4, _, _, _}, [%t, {%f0}]; mov.b32 %r4, %f4;"
    handle = device.texture(Image(filled(device, data), "f32", 8), Sampler(("border",), border=(99.0, 0.0, 0.0, 0.0)))
    _, got = run(device, body, handle, places)
    assert got.view(np.float32)[:, 0].tolist() == [data[0], 99, 99]


def test_questions_about_a_texture() -> None:
    device = Device()
    image = Image(filled(device, elements("u8", 3, 6, 9)), "u8", 9, 6, layers=3)
    body = "txq.width.b32 %r4, [%t]; txq.height.b32 %r5, [%t]; txq.array_size.b32 %r6, [%t];"
    body += "txq.normalized_coords.b32 %r7, [%t];"
    handle = device.texture(image, Sampler(normalized=True))
    assert run(device, body, handle, np.zeros((1, 1), np.uint32))[1][0].tolist() == [9, 6, 3, 1]


def test_lanes_may_name_different_textures() -> None:
    device = Device()
    handles = [device.texture(Image(filled(device, np.full(4, n, np.uint32)), "u32", 4, linear=True)) for n in (5, 9)]
    given = np.array([[handle & 0xFFFFFFFF, handle >> 32] for handle in handles * 20], np.uint32)
    body = "mov.b64 %t, {%r0, %r1}; mov.b32 %r2, 1;"
    _, got = run(device, f"{body} tex.1d.v4.u32.s32 {FETCHED}, [%t, {{%r2}}];", 0, given)
    assert got[:, 0].tolist() == [5, 9] * 20


FETCH = f"tex.1d.v4.u32.s32 {FETCHED}, [%t, {{%r0}}];"
ONE = np.zeros((1, 1), np.uint32)


@pytest.mark.parametrize("profile", ["strict", "lenient"])
def test_a_handle_that_is_none_ends_the_launch(profile: Any) -> None:
    device = Device(profile=profile)
    flat = device.texture(Image(filled(device, elements("u32", 4, 4)), "u32", 4, 4))
    surface = device.surface(Image(filled(device, elements("u32", 4)), "u32", 4))
    line = device.texture(Image(filled(device, elements("u32", 4)), "u32", 4, linear=True))
    gone = device.texture(Image(filled(device, elements("u32", 4)), "u32", 4, linear=True))
    assert not run(device, FETCH, gone, ONE)[0].findings
    device.destroy(gone)
    for handle, says in (
        (17, "is no texture object"),
        (gone, "was destroyed"),
        (flat, "a 2D texture"),
        (surface, "surf"),
    ):
        report, _ = run(device, FETCH, handle, ONE)
        assert [f.rule for f in report.findings] == ["image-object"]
        assert says in report.findings[0].message
    by_number = "tex.1d.v4.u32.f32 {%r4, %r5, %r6, %r7}, [%t, {%f0}];"
    assert "tex1Dfetch" in run(device, by_number, line, ONE)[0].findings[0].message
    with pytest.raises(ValueError, match="is no texture"):
        device.destroy(gone)


def test_what_the_launch_has_written_is_not_for_textures() -> None:
    """They are not coherent with stores of the same launch; the next launch reads what this one has stored."""
    device = Device()
    address = filled(device, np.arange(32, dtype=np.uint32))
    handle = device.texture(Image(address, "u32", 32, linear=True))
    given = np.tile(np.array([address & 0xFFFFFFFF, address >> 32, 3], np.uint32), (1, 1))
    store = "mov.b64 %l0, {%r0, %r1}; st.global.u32 [%l0+12], 77; "
    fetch = f"tex.1d.v4.u32.s32 {FETCHED}, [%t, {{%r2}}];"
    report, _ = run(device, store + "membar.gl;" + fetch, handle, given)
    assert [f.rule for f in report.findings] == ["non-coherent-load"]
    report, got = run(device, fetch, handle, given)
    assert not report.findings
    assert got[0, 0] == 77


def test_what_nobody_has_written_is_told_where_it_is_used() -> None:
    """Strict at the fetch, lenient where the value goes; a value that goes nowhere is let pass."""
    for profile, keeps, rules in (
        ("strict", True, ["uninitialised-global"]),
        ("lenient", True, ["uninitialised-global"]),
        ("lenient", False, []),
    ):
        device = Device(profile=profile)  # type: ignore[arg-type]
        handle = device.texture(Image(device.alloc(64, "empty").address, "u32", 16, linear=True))
        body = FETCH if keeps else FETCH + "mov.b32 %r4, 0; mov.b32 %r5, 0; mov.b32 %r6, 0; mov.b32 %r7, 0;"
        report, _ = run(device, body, handle, ONE)
        assert [f.rule for f in report.findings] == rules, profile


def test_a_register_is_followed_by_what_it_was_loaded_with_last() -> None:
    device = Device(profile="lenient")
    buffer = device.alloc(32, "half written")
    device.write(buffer.address, np.arange(4, dtype=np.uint32))
    handle = device.texture(Image(buffer.address, "u32", 8, linear=True))
    body = f"""tex.1d.v4.u32.s32 {FETCHED}, [%t, {{%r0}}];
tex.1d.v4.u32.s32 {FETCHED}, [%t, {{%r1}}];
setp.eq.u32 %p, %i, 1; @%p mov.b32 %r4, 0; @%p mov.b32 %r5, 0; @%p mov.b32 %r6, 0; @%p mov.b32 %r7, 0;"""
    report, got = run(device, body, handle, np.array([[7, 3], [2, 6]], np.uint32))
    assert not report.findings
    assert got[:, 0].tolist() == [3, 0]


def test_an_element_without_weight_is_not_read() -> None:
    device = Device()
    buffer = device.alloc(32, "half written")
    device.write(buffer.address, np.arange(4, dtype=np.float32))
    handle = device.texture(Image(buffer.address, "f32", 8), Sampler(filtered=True))
    body = "tex.1d.v4.f32.f32 {%f4, _, _, _}, [%t, {%f0}]; mov.b32 %r4, %f4;"
    report, got = run(device, body, handle, np.array([[3.5]], np.float32))
    assert not report.findings
    assert got.view(np.float32)[0, 0] == 3
    report, _ = run(device, body, handle, np.array([[3.75]], np.float32))
    assert [f.rule for f in report.findings] == ["uninitialised-global"]


def test_memory_that_is_gone_is_out_of_bounds() -> None:
    device = Device()
    buffer = device.alloc(64, "gone", zeroed=True)
    handle = device.texture(Image(buffer.address, "u32", 16, linear=True))
    device.free(buffer)
    assert [f.rule for f in run(device, FETCH, handle, ONE)[0].findings] == ["global-out-of-bounds"]


@pytest.mark.parametrize(
    ("image", "sampler", "says"),
    [
        (Image(4096, "u32", 4, 4), Sampler(filtered=True), "are not filtered"),
        (Image(4096, "u8", 4, 4), Sampler(filtered=True), "are not filtered"),
        (Image(4096, "u32", 4, 4), Sampler(scaled=True), "not read as fractions"),
        (Image(4096, "u8", 4, channels=3), None, "1, 2 or 4 channels"),
        (Image(4096, "u8", 0), None, "width"),
        (Image(4096, "u8", 4, depth=2), None, "has a height"),
        (Image(4096, "u8", 4, 4, linear=True), Sampler(), "linear memory"),
        (Image(4096, "f32", 4, 4, pitch=8), None, "a row has 16"),
        (Image(4096, "f32", 4), Sampler(("around",)), "each is one of"),  # type: ignore[arg-type]
        (Image(4096, "f64", 4), None, "is not one of"),  # type: ignore[arg-type]
    ],
)
def test_what_has_no_object_says_why(image: Image, sampler: Sampler | None, says: str) -> None:
    device = Device()
    with pytest.raises(ImageError, match=says):
        device.texture(image, sampler) if sampler else device.surface(image)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tex.cube.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%t, {%f0, %f1, %f2, %f2}];", "cube"),
        ("tex.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%t, %t, {%f0, %f1}];", "coordinates"),
        ("tex.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%t, {%f0}];", "2 coordinates"),
        ("tex.2d.v4.f16.f32 {%h4, %h5, %h6, %h7}, [%t, {%f0, %f1}];", "f16"),
        ("sust.p.2d.v4.b32.trap [%t, {%r0, %r1}], {%r4, %r5, %r6, %r7};", ".b is missing"),
    ],
)
def test_forms_that_are_refused_name_what(line: str, says: str) -> None:
    with pytest.raises(PtxError, match=says):
        run(Device(), line, 0, ONE)


@pytest.mark.parametrize("threads", [1, 2])
def test_elements_are_changed_in_place(threads: int) -> None:
    """Each thread fetches its element before it stores the next value there: no other has to do with it."""
    device = Device(threads=threads)
    data = RNG.integers(0, 1 << 30, 512, dtype=np.uint32)
    address = filled(device, data)
    handle = device.texture(Image(address, "u32", 512, linear=True))
    text = f""".version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 object, .param .u64 out)
{{ .reg .b64 %t, %o, %at; .reg .b32 %i, %c, %r<8>;
ld.param.u64 %t, [object]; ld.param.u64 %o, [out]; mov.u32 %i, %tid.x; mov.u32 %c, %ctaid.x;
mad.lo.u32 %i, %c, 64, %i; mul.wide.u32 %at, %i, 4; add.s64 %o, %o, %at;
tex.1d.v4.u32.s32 {FETCHED}, [%t, {{%i}}];
add.u32 %r4, %r4, 1; st.global.u32 [%o], %r4; ret; }}"""
    report = device.launch(load_ptx(text), "k", 8, 64, [handle, address])
    assert not report.findings
    assert report.stats["threads"] == threads
    np.testing.assert_array_equal(device.read(address, 2048).view(np.uint32), data + 1)
