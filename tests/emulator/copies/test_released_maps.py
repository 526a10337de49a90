"""What released kernels do with tensor maps: they make them, change them and use unusual types. Legal habits are clean
under both profiles, and the nearest wrong program is reported."""

from __future__ import annotations

import numpy as np
import pytest

from fmha.emulator import encode_tiled
from tests.emulator.clusterlab import Run, init_barriers, run, wait

ONE = {"out": np.zeros(256, np.uint32), "space": np.zeros(128, np.uint8)}

# Triton, tensor descriptors made on the device: 128 bytes of zeros in shared memory, every field replaced by one lane,
# published by a warp, used by another.
MAKE_MAP = """
mov.u32 %r30, tile;
setp.lt.u32 %p1, %tid, 32;
shl.b32 %r31, %tid, 2;
add.u32 %r31, %r31, %r30;
@%p1 st.shared.u32 [%r31], {initial};
bar.warp.sync -1;
@%leader tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r30], %out;
@%leader tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r30], 0;
{box}
@%leader tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r30], 0, 16;
@%leader tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r30], 0, 1;
@%leader tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r30], 2;
bar.warp.sync -1;
@%p1 tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%space], [%r30], 128;
{fence}
{barrier}
setp.eq.u32 %p2, %tid, 32;
add.u32 %r32, %r30, 1024;
@%p2 st.shared.v4.u32 [%r32], {{7, 7, 7, 7}};
@%p2 fence.proxy.async.shared::cta;
@%p2 cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%space, {{8}}], [%r32];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
"""
BOX = "@%leader tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r30], 0, 4;"
ACQUIRE = "@%p1 fence.proxy.tensormap::generic.acquire.gpu [%space], 128;"


def map_made_on_the_device(
    initial: str = "0", box: str = BOX, fence: str = ACQUIRE, barrier: str = "bar.sync 0;"
) -> Run:
    return run(MAKE_MAP.format(initial=initial, box=box, fence=fence, barrier=barrier), ONE, block=64)


def test_a_map_made_from_zeros_and_fenced_by_another_warp() -> None:
    done = map_made_on_the_device().clean()
    np.testing.assert_array_equal(np.flatnonzero(done.arrays["out"]), [8, 9, 10, 11])


def test_the_fence_counts_for_warps_that_synchronise_with_it() -> None:
    assert map_made_on_the_device(fence="").rules == {"tensor-map-stale"}
    late = map_made_on_the_device(fence="", barrier="bar.sync 0;\n" + ACQUIRE)
    assert late.rules == {"tensor-map-stale"}


def test_a_map_is_made_from_zeros_only_and_whole() -> None:
    assert map_made_on_the_device(initial="1").rules == {"tensormap-replace"}
    assert map_made_on_the_device(box="").rules == {"tensor-map"}


# CuTe DSL, grouped GEMM: a map made from another one, of which the kernel copies the first 64 bytes.
COPY_MAP = """
mov.u32 %r30, tile;
@%leader ld.param.v2.b64 {{%d1, %d2}}, [map];
@%leader st.shared.v2.b64 [%r30], {{%d1, %d2}};
@%leader ld.param.v2.b64 {{%d1, %d2}}, [map+16];
@%leader st.shared.v2.b64 [%r30+16], {{%d1, %d2}};
@%leader ld.param.v2.b64 {{%d1, %d2}}, [map+32];
@%leader st.shared.v2.b64 [%r30+32], {{%d1, %d2}};
@%leader ld.param.v2.b64 {{%d1, %d2}}, [map+48];
@%leader st.shared.v2.b64 [%r30+48], {{%d1, %d2}};
@%leader tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r30], %out;
@%leader tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r30], 0, 16;
@%leader tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r30], 4, 1;
@%leader tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r30], 3, 0;
{poke}
bar.warp.sync -1;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%space], [%r30], 128;
fence.proxy.tensormap::generic.acquire.gpu [%space], 128;
add.u32 %r32, %r30, 1024;
@%leader st.shared.v4.u32 [%r32], {{7, 7, 7, 7}};
@%leader fence.proxy.async.shared::cta;
@%leader cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%space, {{8}}], [%r32];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
"""
# CuTe DSL 4.8: after a replacement the kernel sets bit 21 of the second word of the map by the size of the tensor.
POKE = """
@%leader ld.shared.b64 %d1, [%r30+8];
@%leader {change};
@%leader st.shared.b64 [%r30+8], %d1;
"""


@pytest.mark.parametrize("change", ["", "or.b64 %d1, %d1, 2097152", "and.b64 %d1, %d1, -2097153"])
def test_the_first_64_bytes_of_a_map_are_all_that_counts(change: str) -> None:
    maps = {
        "map": lambda at: encode_tiled(
            dtype="u32", address=at["space"], global_dim=[4], global_strides=[], box_dim=[4], l2_promotion="128B"
        )
    }
    done = run(COPY_MAP.format(poke=POKE.format(change=change) if change else ""), ONE, maps).clean()
    np.testing.assert_array_equal(np.flatnonzero(done.arrays["out"]), [8, 9, 10, 11])


# NVFP4 GEMMs: sixteen 4-bit elements packed into eight bytes.
NIBBLES = """
mov.u32 %r30, tile;
@%leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;
@%leader cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r30], [%map, {{{x}, 1}}], [bar];
{wait}
shl.b32 %r31, %tid, 2;
add.u32 %r31, %r31, %r30;
setp.lt.u32 %p1, %tid, 16;
@%p1 ld.shared.u32 %r32, [%r31];
mul.wide.u32 %d1, %tid, 4;
add.u64 %d1, %d1, %out;
@%p1 st.global.u32 [%d1], %r32;
"""


def nibbles(x: int) -> Run:
    arrays = {"data": np.arange(256, dtype=np.uint8), "out": np.zeros(64, np.uint8)}
    maps = {
        "map": lambda at: encode_tiled(
            dtype="16u4_align8b", address=at["data"], global_dim=[128, 4], global_strides=[64], box_dim=[64, 2]
        )
    }
    return run(init_barriers() + NIBBLES.format(x=x, wait=wait()), arrays, maps)


def test_a_tensor_map_of_packed_4_bit_elements() -> None:
    rows = np.arange(256, dtype=np.uint8).reshape(4, 64)
    for x in (0, 32, 64):
        expected = np.zeros((2, 32), np.uint8)
        expected[:, : 64 - x // 2] = rows[1:3, x // 2 : x // 2 + 32]
        np.testing.assert_array_equal(nibbles(x).clean().arrays["out"].reshape(2, 32), expected)
    assert nibbles(8).rules == {"tensor-coordinate"}


# Triton, mxfp8 times mxfp4: sixteen packed elements take 16 bytes of shared memory, the rest of which nobody writes.
PADDED = """
mov.u32 %r30, tile;
@%leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {expected};
@%leader cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r30], [%map, {{{x}, 1}}], [bar];
{wait}
shl.b32 %r31, %tid, 2;
add.u32 %r31, %r31, %r30;
and.b32 %r32, %tid, 3;
setp.lt.u32 %p1, %r32, {words};
@%p1 ld.shared.u32 %r33, [%r31];
@%p1 ld.shared.u32 %r34, [%r31+128];
mul.wide.u32 %d1, %tid, 4;
add.u64 %d1, %d1, %out;
@%p1 st.global.u32 [%d1], %r33;
@%p1 st.global.u32 [%d1+128], %r34;
"""


def padded(bits: int, x: int = 0, words: int | None = None, swizzle: str = "none") -> Run:
    """The second and third row of 128 elements, as they lie in shared memory."""
    data = np.random.default_rng(1).integers(0, 256, (4, 256 * bits // 8), dtype=np.uint8)
    arrays = {"data": data, "out": np.zeros((2, 8, 4), np.uint32)}
    maps = {
        "map": lambda at: encode_tiled(
            dtype=f"16u{bits}_align16b",
            address=at["data"],
            global_dim=[256, 4],
            global_strides=[data.shape[1]],
            box_dim=[128, 2],
            swizzle=swizzle,
        )
    }
    body = PADDED.format(x=x, expected=2 * 128 * bits // 8, words=words or bits // 2, wait=wait())
    return run(init_barriers() + body, arrays, maps)


@pytest.mark.parametrize("bits", [4, 6])
@pytest.mark.parametrize("swizzle", ["none", "128B"])
@pytest.mark.parametrize("x", [0, 128])
def test_a_tensor_map_of_padded_elements(bits: int, swizzle: str, x: int) -> None:
    done = padded(bits, x, swizzle=swizzle).clean()
    got, words = done.arrays["out"], bits // 2
    rows = done.arrays["data"].view(np.uint32).reshape(4, 2, 8, words)[1:3, x // 128]
    if swizzle != "none":  # the box starts at a multiple of 1024 bytes: row r has its chunks exchanged with r
        got = np.stack([got[r][np.arange(8) ^ r] for r in range(2)])
    np.testing.assert_array_equal(got[:, :, :words], rows)


@pytest.mark.parametrize("bits", [4, 6])
def test_the_padding_is_not_written(bits: int) -> None:
    assert padded(bits, words=4).rules == {"uninitialised-shared"}
    assert padded(bits, x=64).rules == {"tensor-coordinate"}


@pytest.mark.parametrize(("bits", "text"), [(4, "only loads take"), (6, "b6p2x16")])
def test_stores_through_maps_of_padded_elements_are_refused(bits: int, text: str) -> None:
    arrays = {"data": np.zeros(4 * 256 * bits // 8, np.uint8)}
    maps = {
        "map": lambda at: encode_tiled(
            dtype=f"16u{bits}_align16b",
            address=at["data"],
            global_dim=[256, 4],
            global_strides=[32 * bits],
            box_dim=[128, 2],
        )
    }
    store = "@%leader cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {0, 0}], [%r30];"
    done = run("mov.u32 %r30, tile;\n" + store, arrays, maps)
    assert done.rules == {"tensor-map"}
    assert text in done.report.findings[0].message
