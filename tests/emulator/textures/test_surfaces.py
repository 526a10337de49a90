"""suld.b and sust.b: bytes of a surface, and what is outside of it."""

from __future__ import annotations

import numpy as np
import pytest

from fmha.emulator import Device, Image, PtxError
from tests.emulator.texture_rig import filled, run

WIDTH, HEIGHT = 8, 5
PLACES = np.array([(4 * x, y) for y in range(-1, HEIGHT + 1) for x in range(-1, WIDTH + 1)], np.int32)


def image(device: Device) -> tuple[Image, np.ndarray]:
    data = np.arange(1, WIDTH * HEIGHT + 1, dtype=np.uint32).reshape(HEIGHT, WIDTH)
    return Image(filled(device, data), "u32", WIDTH, HEIGHT), data


def test_loads_outside_are_zeros_or_the_nearest() -> None:
    device = Device()
    about, data = image(device)
    x, y = PLACES[:, 0] // 4, PLACES[:, 1]
    nearest = data[np.clip(y, 0, HEIGHT - 1), np.clip(x, 0, WIDTH - 1)]
    inside = (x >= 0) & (x < WIDTH) & (y >= 0) & (y < HEIGHT)
    for mode, wanted in (("clamp", nearest), ("zero", np.where(inside, nearest, 0))):
        body = f"suld.b.2d.b32.{mode} {{%r4}}, [%t, {{%r0, %r1}}];"
        report, got = run(device, body, device.surface(about), PLACES)
        assert not report.findings
        np.testing.assert_array_equal(got[:, 0], wanted)


def test_stores_outside_are_dropped_or_go_to_the_nearest() -> None:
    for mode, wanted in (("zero", 0), ("clamp", 77)):
        device = Device()
        about, _ = image(device)
        body = f"mov.b32 %r4, 77; sust.b.2d.b32.{mode} [%t, {{%r0, %r1}}], {{%r4}};"
        report, _ = run(device, body, device.surface(about), np.array([(4 * WIDTH, HEIGHT)], np.int32))
        assert not report.findings
        after = device.read(about.address, 4 * WIDTH * HEIGHT).view(np.uint32)
        assert after[-1] == (wanted or WIDTH * HEIGHT)
        assert after[:-1].tolist() == [*range(1, WIDTH * HEIGHT)]


@pytest.mark.parametrize("place", [(4 * WIDTH, 0), (0, HEIGHT), (-4, 0), (0, -1)])
@pytest.mark.parametrize("profile", ["strict", "lenient"])
def test_a_trap_ends_the_launch(place: tuple[int, int], profile: str) -> None:
    device = Device(profile=profile)  # type: ignore[arg-type]
    about, _ = image(device)
    given = np.array([place], np.int32)
    for body in (
        "suld.b.2d.b32.trap %r4, [%t, {%r0, %r1}];",
        "sust.b.2d.b32.trap [%t, {%r0, %r1}], %r4;",
    ):
        report, _ = run(device, body, device.surface(about), given)
        assert [f.rule for f in report.findings] == ["surface-out-of-bounds"]
    inside = np.array([(4 * WIDTH - 4, HEIGHT - 1)], np.int32)
    report, got = run(device, "suld.b.2d.b32.trap %r4, [%t, {%r0, %r1}];", device.surface(about), inside)
    assert not report.findings
    assert got[0, 0] == WIDTH * HEIGHT


@pytest.mark.parametrize(
    ("type_name", "vector", "registers"),
    [
        ("b8", "", "{%h4}"),
        ("b8", ".v4", "{%h4, %h5, %h6, %h7}"),
        ("b16", ".v2", "{%h4, %h5}"),
        ("b32", ".v4", "{%r4, %r5, %r6, %r7}"),
        ("b64", ".v2", "{%l0, %l1}"),
    ],
)
def test_bytes_go_through_every_width(type_name: str, vector: str, registers: str) -> None:
    """A row is copied to another, by so many bytes a thread."""
    device = Device()
    data = np.arange(128, dtype=np.uint8).reshape(2, 64)
    address = filled(device, data)
    size = int(type_name[1:]) // 8 * int(vector[2:] or 1)
    places = np.arange(0, 64, size, dtype=np.int32)[:, None]
    body = f"""mov.b32 %r1, 0; mov.b32 %r2, 1;
suld.b.2d{vector}.{type_name}.trap {registers}, [%t, {{%r0, %r1}}];
sust.b.2d{vector}.{type_name}.trap [%t, {{%r0, %r2}}], {registers};"""
    report, _ = run(device, body, device.surface(Image(address, "u8", 16, 2, channels=4)), places)
    assert not report.findings
    assert device.read(address + 64, 64).tolist() == [*range(64)]


def test_planes_and_layers() -> None:
    device = Device()
    data = np.arange(3 * 4 * 5, dtype=np.uint16).reshape(3, 4, 5)
    address = filled(device, data)
    given = np.array([(2, 3, 1), (8, 0, 2)], np.int32)  # x in bytes, y, z
    wanted = [data[1, 3, 1], data[2, 0, 4]]
    deep = device.surface(Image(address, "u16", 5, 4, 3))
    body = "suld.b.3d.b16.trap %h4, [%t, {%r0, %r1, %r2, %r2}]; cvt.u32.u16 %r4, %h4;"
    assert run(device, body, deep, given)[1][:, 0].tolist() == wanted
    layered = device.surface(Image(address, "u16", 5, 4, layers=3))
    body = "suld.b.a2d.b16.trap %h4, [%t, {%r2, %r0, %r1, %r1}]; cvt.u32.u16 %r4, %h4;"
    assert run(device, body, layered, given)[1][:, 0].tolist() == wanted
    report, _ = run(device, body, layered, np.array([(0, 0, 3)], np.int32))
    assert [f.rule for f in report.findings] == ["surface-out-of-bounds"]


def test_a_surface_is_not_read_after_it_was_written() -> None:
    """By the same launch: the programming guide leaves undefined what is read."""
    device = Device()
    about, _ = image(device)
    body = """sust.b.2d.b32.trap [%t, {%r0, %r1}], %r4;
suld.b.2d.b32.trap %r5, [%t, {%r0, %r1}];"""
    report, _ = run(device, body, device.surface(about), np.zeros((1, 2), np.int32))
    assert [f.rule for f in report.findings] == ["non-coherent-load"]


def test_two_threads_race_for_one_element() -> None:
    device = Device()
    about, _ = image(device)
    body = "sust.b.2d.b32.trap [%t, {%r0, %r1}], %i;"
    report, _ = run(device, body, device.surface(about), np.zeros((64, 2), np.int32))
    assert {f.rule for f in report.findings} == {"race"}


def test_questions_and_widths() -> None:
    device = Device()
    about, _ = image(device)
    body = "suq.width.b32 %r4, [%t]; suq.height.b32 %r5, [%t];"
    assert run(device, body, device.surface(about), np.zeros((1, 1), np.int32))[1][0, :2].tolist() == [WIDTH, HEIGHT]
    with pytest.raises(PtxError, match="16 bytes at most"):
        run(device, "suld.b.1d.v4.b64.trap {%l0, %l1, %l2, %l3}, [%t, {%r0}];", 0, np.zeros((1, 1), np.int32))
    misaligned, _ = run(
        device, "suld.b.2d.b32.trap %r4, [%t, {%r0, %r1}];", device.surface(about), np.array([(2, 0)], np.int32)
    )
    assert [f.rule for f in misaligned.findings] == ["misaligned"]


def test_handles_of_objects_are_no_references() -> None:
    """istypep looks at the three highest bits of a handle."""
    device = Device()
    about, _ = image(device)
    given = np.array([[0, 1 << 29], [0, 1 << 30], [0, 1 << 31], [0, 0]], np.uint32)
    body = "mov.b64 %l0, {%r0, %r1};"
    for n, name in enumerate(("texref", "samplerref", "surfref")):
        body += f"istypep.{name} %p, %l0; @%p or.b32 %r4, %r4, {1 << n};"
        body += f"istypep.{name} %p, %t; @%p or.b32 %r5, %r5, 1;"
    _, got = run(device, body, device.surface(about), given)
    assert got[:, 0].tolist() == [1, 2, 4, 0]
    assert not got[:, 1].any()
