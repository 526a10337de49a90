"""Tensor loads against NumPy: boxes, fill, swizzles, strides, gathers, multicast."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.bulk_rig import COPY_OUT, STORED, Shape, cut, load, numbers, swizzle_bytes, tiled
from tests.emulator.clusterlab import CLUSTER_SYNC, init_barriers, run, wait


@pytest.mark.parametrize(
    ("shape", "box", "start"),
    [
        ((100,), (32,), (52,)),
        ((100,), (32,), (-8,)),
        ((101,), (32,), (92,)),
        ((9, 40), (4, 16), (3, 20)),
        ((9, 40), (4, 16), (-2, -4)),
        ((9, 40), (4, 16), (7, 32)),
        ((9, 40), (4, 16), (100, 0)),
        ((5, 6, 20), (2, 3, 8), (4, -1, 16)),
        ((3, 4, 5, 12), (2, 2, 3, 4), (2, 3, -2, 8)),
        ((3, 2, 4, 5, 12), (2, 2, 2, 3, 4), (-1, 1, 3, -2, 8)),
    ],
)
def test_boxes_with_out_of_bounds_fill(shape: Shape, box: Shape, start: Shape) -> None:
    data = numbers(shape, np.uint32)
    np.testing.assert_array_equal(load(data, "u32", box, start), cut(data, start, box).reshape(-1).view(np.uint8))


@pytest.mark.parametrize(
    ("mode", "width"),
    [
        ("32B", 8),
        ("64B", 16),
        ("128B", 32),
        ("128B_atom_32B", 32),
        ("128B_atom_32B_flip_8B", 32),
        ("128B_atom_64B", 32),
    ],
)
def test_swizzles(mode: str, width: int) -> None:
    data = np.arange(40 * 64, dtype=np.uint32).reshape(40, 64)
    got = load(data, "u32", (32, width), (3, 4), swizzle=mode)
    np.testing.assert_array_equal(got, swizzle_bytes(cut(data, (3, 4), (32, width)), mode))


@pytest.mark.parametrize(
    ("mode", "rows", "offset", "told"),
    [
        ("128B", 16, 128, True),
        ("128B", 16, 1024, False),
        ("128B", 4, 512, False),  # a part of the pattern: a tile is loaded in pieces
        ("64B", 16, 512, False),
        ("64B", 16, 384, True),
        ("128B_atom_64B", 16, 256, False),
        ("none", 16, 128, False),
    ],
)
def test_a_swizzled_box_within_its_pattern_is_a_warning(mode: str, rows: int, offset: int, told: bool) -> None:
    width = 16 if mode == "64B" else 32
    body = f"""
    {init_barriers()}
    mov.u32 %r9, bar; mov.u32 %r8, tile; add.u32 %r8, %r8, {offset};
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {4 * width * rows};
    cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r8], [%map, {{0, 0}}], [%r9];
    {wait()}
    """
    arrays = {"data": np.arange(16 * 32, dtype=np.uint32).reshape(16, 32)}
    maps = {"map": tiled("data", (16, 32), (rows, width), swizzle=mode)}
    report = run(body, arrays, maps, block=1).report
    assert [(f.rule, f.severity) for f in report.findings] == [("swizzle-base", "warning")] * told
    assert run(body, arrays, maps, block=1, profile="lenient").rules == set(), "CuTe DSL's unaligned GEMM does so"


@pytest.mark.parametrize(("dtype", "bits"), [("f16", 0x7FF7), ("bf16", 0x7FF7), ("f32", 0x7FF77FF7)])
def test_nan_fill(dtype: str, bits: int) -> None:
    """What an H200 fills with (results/probes-h200.json): the driver says only that it is a NaN."""
    word = np.uint32 if dtype == "f32" else np.uint16
    data = numbers((4, 32), word)
    got = load(data.view(np.float32) if dtype == "f32" else data, dtype, (2, 16), (3, 24), oob_fill="nan")
    np.testing.assert_array_equal(got.view(word).reshape(2, 16), cut(data, (3, 24), (2, 16), fill=bits))


@pytest.mark.parametrize(("mode", "width"), [("32B", 4), ("64B", 12), ("128B", 20), ("128B_atom_64B", 16)])
def test_rows_shorter_than_the_swizzles_span_take_all_of_it(mode: str, width: int) -> None:
    """As on an H200 (results/probes-h200.json). The bytes in between are left as they are, and do not count."""
    data = np.arange(1, 40 * 64 + 1, dtype=np.uint32).reshape(40, 64)
    span = {"32B": 8, "64B": 16}.get(mode, 32)
    got = load(data, "u32", (8, width), (3, 4), swizzle=mode, span=4 * span)
    rows = np.zeros((8, span), np.uint32)
    rows[:, :width] = cut(data, (3, 4), (8, width))
    np.testing.assert_array_equal(got, swizzle_bytes(rows, mode))


def test_element_strides() -> None:
    data = np.arange(12 * 9 * 32, dtype=np.uint32).reshape(12, 9, 32)
    got = load(data, "u32", (5, 6, 8), (2, -1, 4), element_strides=[1, 2, 3])
    want = cut(data, (2, -1, 4), (5, 6, 8), (3, 2, 1))
    np.testing.assert_array_equal(got, want.reshape(-1).view(np.uint8))


def test_subnormals_of_flushing_types() -> None:
    data = np.array([1e-40, -1e-40, 1.0, 2.0], np.float32).repeat(4).reshape(4, 4)
    got = load(data, "f32_ftz", (4, 4), (0, 0)).view(np.float32).reshape(4, 4)
    want = np.where(np.abs(data) < 1e-38, np.copysign(np.float32(0), data), data)
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("rows", [(0, 1, 2, 3), (7, -1, 7, 100), (2**30, -(2**31), 5, 4)])
@pytest.mark.parametrize("column", [0, 12, -4, 28])
def test_gather4(rows: Shape, column: int) -> None:
    data = np.arange(8 * 32, dtype=np.uint32).reshape(8, 32)
    body = f"""
    {init_barriers(1)} mov.u32 %r9, bar; mov.u32 %r8, tile;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
    cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes.cta_group::1.L2::cache_hint
        [%r8], [%map, {{{column}, {rows[0]}, {rows[1]}, {rows[2]}, {rows[3]}}}], [%r9], %d5;
    {wait()} {COPY_OUT.format(chunks=8)}
    """
    body = "mov.u64 %d5, 0;" + body
    out = np.zeros((4, 8), np.uint32)
    done = run(body, {"data": data, "out": out}, {"map": tiled("data", data.shape, (1, 8))}, block=1).clean()
    want = np.concatenate([cut(data, (y, column), (1, 8)) for y in rows])
    np.testing.assert_array_equal(done.arrays["out"], want)


def multicast(size: int, mask: int, group: str = "", barrier: str = "mov.u32 %r9, bar;", expect: str = "") -> str:
    return f"""
    {init_barriers(1)} {barrier} mov.u32 %r8, tile; mov.u16 %h1, {mask};
    {expect or "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;"}
    setp.eq.u32 %p1, %rank, 0;
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster{group}
        [%r8], [%map, {{8, 2}}], [%r9], %h1;
    """


def test_multicast() -> None:
    data, out = numbers((16, 32), np.uint32), np.zeros((4, 8, 16), np.uint32)
    body = f"""
    {multicast(4, 15)} {wait()}
    mul.wide.u32 %d2, %cta, 512; add.u64 %d2, %out, %d2;
    cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r8], 512; {STORED} {CLUSTER_SYNC}
    """
    maps = {"map": tiled("data", data.shape, (8, 16))}
    for schedule in ("realistic", "random", "late"):
        done = run(body, {"data": data, "out": out}, maps, block=1, grid=4, cluster=4, schedule=schedule).clean()
        np.testing.assert_array_equal(done.arrays["out"], np.stack([cut(data, (2, 8), (8, 16))] * 4))
    bad = body.replace("mov.u16 %h1, 15", "mov.u16 %h1, 7")
    assert "deadlock" in run(bad, {"data": data, "out": out}, maps, block=1, grid=4, cluster=4).rules
    wide = body.replace("mov.u16 %h1, 15", "mov.u16 %h1, 31")
    assert run(wide, {"data": data, "out": out}, maps, block=1, grid=4, cluster=4).rules == {"multicast-mask"}


def test_pair_signals_go_to_the_leader() -> None:
    """cta_group::2: each CTA loads its tile, both signal the even CTA's mbarrier, which tells the other."""
    data, out = numbers((16, 32), np.uint32), np.zeros((2, 8, 16), np.uint32)
    body = f"""
    {init_barriers(1, 2)} mov.u32 %r9, bar; and.b32 %r9, %r9, 0xFEFFFFFF; mov.u32 %r8, tile;
    setp.eq.u32 %p1, %rank, 0;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
    shl.b32 %r3, %rank, 4;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2
        [%r8], [%map, {{%r3, 2}}], [%r9];
    @!%p1 bra PEER;
    {wait()}
    mov.u32 %r10, bar; add.u32 %r10, %r10, 8; mapa.shared::cluster.u32 %r11, %r10, 1;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11]; bra READY;
    PEER: {wait("bar+8")}
    READY:
    mul.wide.u32 %d2, %cta, 512; add.u64 %d2, %out, %d2;
    cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r8], 512; {STORED} {CLUSTER_SYNC}
    """
    maps = {"map": tiled("data", data.shape, (8, 16))}
    done = run(body, {"data": data, "out": out}, maps, block=1, grid=2, cluster=2).clean()
    np.testing.assert_array_equal(done.arrays["out"], np.stack([data[2:10, :16], data[2:10, 16:]]))
    single = body.replace(".cta_group::2", ".cta_group::1")
    assert run(single, {"data": data, "out": out}, maps, block=1, grid=2, cluster=2).rules == {"bulk-copy-mbarrier"}
