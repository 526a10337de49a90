"""What released compilers were seen to emit, each habit in its smallest form: legal ones are clean under both profiles,
those that break a rule without harm only under the lenient one, and the nearest wrong program is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator import PtxError, encode_tiled
from tests.emulator.clusterlab import CLUSTER_SYNC, Run, init_barriers, run, wait

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


# CuTe DSL, multicast: a CTA fills its neighbours' memory and signals their mbarriers; they exit once they have waited
# for that. Issuing the copy is no access of the issuing warp's.
MULTICAST = f"""
{init_barriers(1)}
mov.u32 %r8, tile; mov.u32 %r9, bar; mov.u16 %h1, 3;
@%leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
{CLUSTER_SYNC}
setp.eq.and.u32 %p1, %rank, 0, %leader;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
    [%r8], [%out], 128, [%r9], %h1;
"""


def test_a_copy_into_a_peer_that_waits_for_it() -> None:
    done = run(MULTICAST + wait(), ONE, grid=2, cluster=2).clean()
    assert done.report.stats["bulk_loads"] == 2
    one = "setp.eq.u32 %p3, %rank, 0; @!%p3 bra END;" + wait() + "END:"
    assert run(MULTICAST + one, ONE, grid=2, cluster=2).rules == {"exit-with-work-in-flight"}


# The CUDA programming guide, atomics made of a compare-and-swap: the loop begins with a plain load.
SWAP_LOOP = """
and.b32 %r39, %tid, 31;
setp.ne.u32 %p1, %r39, 0;
@%p1 bra DONE;
ld.global.u32 %r40, [%out];
AGAIN:
mov.u32 %r41, %r40;
add.u32 %r42, %r41, 1;
atom.global.cas.b32 %r40, [{target}], %r41, %r42;
setp.ne.u32 %p2, %r40, %r41;
@%p2 bra AGAIN;
DONE:
"""


def test_the_plain_load_of_a_compare_and_swap_loop() -> None:
    done = run(SWAP_LOOP.format(target="%out"), ONE, grid=3, block=64, profile="lenient").clean()
    assert done.arrays["out"][0] == 6
    assert run(SWAP_LOOP.format(target="%out"), ONE, grid=3, block=64).rules == {"race"}


def test_a_plain_load_of_what_others_add_to_is_a_race() -> None:
    body = "red.global.add.u32 [%out], 1;\nld.global.u32 %r40, [%out];\n"
    assert run(body, ONE, grid=2, profile="lenient").rules == {"race"}


# CUTLASS's FMHA: no tcgen05.wait::ld where the loaded values are used at once.
LOAD = """
setp.lt.u32 %p1, %tid, 32;
@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [word], 32;
bar.sync 0;
ld.shared.u32 %r31, [word];
and.b32 %r30, %tid, 32;
shl.b32 %r30, %r30, 16;
add.u32 %r30, %r30, %r31;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r30], {{%tid}};
tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r32}}, [%r30];
tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r33}}, [%r30];
{use}
bar.sync 0;
@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r31, 32;
"""


def test_a_loaded_value_that_is_used_has_arrived() -> None:
    used = LOAD.format(use="add.u32 %r34, %r33, 1;")
    run(used, ONE, block=64, profile="lenient").clean()
    assert "tmem-missing-wait-ld" in run(used, ONE, block=64).rules
    for unused in ("", "mov.u32 %r34, %r33;", "add.u32 %r34, %r32, 1;"):
        assert run(LOAD.format(use=unused), ONE, block=64, profile="lenient").rules == {"tmem-missing-wait-ld"}


# CuTe DSL's FMHA: two pipelines initialise the same barrier before anyone uses it.
def test_a_barrier_that_is_initialised_twice() -> None:
    again = 2 * "@%leader mbarrier.init.shared::cta.b64 [bar], 1;\n"
    run(again, ONE, profile="lenient").clean()
    assert run(again, ONE).rules == {"mbarrier-reinitialised"}


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


# Triton, epilogues: where a tile has fewer elements than the warps have lanes, several warps store the same rows.
MATRIX_STORE = """
mov.u32 %r30, tile;
and.b32 %r31, %tid, 7;
shl.b32 %r31, %r31, 4;
add.u32 %r30, %r30, %r31;
stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r30], {{{value}}};
"""


def test_matrix_stores_of_what_is_there() -> None:
    same, other = MATRIX_STORE.format(value="%r31"), MATRIX_STORE.format(value="%tid")
    run(same, ONE, block=64, profile="lenient").clean()
    assert run(same, ONE, block=64).rules == {"race"}
    assert run(other, ONE, block=64, profile="lenient").rules == {"race"}


# CUTLASS, the mixture of experts: an operand comes by cp.async, which arrives on an mbarrier, and nobody executes a
# proxy fence.
COPY_AND_READ = """
mov.u32 %r30, tile;
shl.b32 %r31, %tid, 4;
add.u32 %r31, %r31, %r30;
mul.wide.u32 %d1, %tid, 16;
add.u64 %d1, %d1, %data;
cp.async.ca.shared.global [%r31], [%d1], 16;
cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];
{wait}
{fence}
@%leader cp.async.bulk.global.shared::cta.bulk_group [%out], [%r30], 512;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
"""


def copy_and_read(fence: str, **options: Any) -> Run:
    arrays = {"data": np.arange(128, dtype=np.uint32), "out": np.zeros(128, np.uint32)}
    return run(init_barriers(32) + COPY_AND_READ.format(wait=wait(), fence=fence), arrays, **options)


def test_the_async_proxy_reads_what_cp_async_wrote() -> None:
    fence = "fence.proxy.async.shared::cta;"
    np.testing.assert_array_equal(copy_and_read(fence).clean().arrays["out"], np.arange(128))
    copy_and_read("", profile="lenient").clean()
    assert copy_and_read("").rules == {"missing-proxy-fence"}
    no_wait = COPY_AND_READ.format(wait="", fence="")
    arrays = {"data": np.arange(128, dtype=np.uint32), "out": np.zeros(128, np.uint32)}
    assert "cp-async-in-flight" in run(init_barriers(32) + no_wait, arrays, profile="lenient").rules


# Triton: the captures of a warp-specialised region, which every warp stores to shared memory. Halves of 64-bit
# registers are stored as 32 bits.
CAPTURES = """
.reg .b64 %v, %w;
mov.b64 %v, 0x7700000000;
{value}
mov.u32 %r30, tile;
st.shared.b32 [%r30], %v;
"""


def test_warps_that_store_the_same_half_of_a_register() -> None:
    same = CAPTURES.format(value="")
    run(same, ONE, block=128, profile="lenient").clean()
    assert run(same, ONE, block=128).rules == {"race"}
    other = CAPTURES.format(value="cvt.u64.u32 %w, %tid; shr.u64 %w, %w, 5; add.u64 %v, %v, %w;")
    assert run(other, ONE, block=128, profile="lenient").rules == {"race"}


# nvcc 13 and the CuTe DSL: a load of 12 bytes, widened, with a pragma that says which of them are used.
WIDENED = """
mov.u32 %r30, tile;
mov.u32 %r31, 5;
setp.lt.u32 %p1, %tid, 32;
@%p1 st.shared.v2.b32 [%r30{first}], {{%r31, %r31}};
@%p1 st.shared.b32 [%r30{second}], %r31;
bar.sync 0;
setp.gt.u32 %p2, %tid, 63;
@%p2 st.shared.b32 [%r30{other}], %tid;
{pragma}
@%p1 ld.shared.v4.b32 {{%r32, %r33, %r34, %r35}}, [%r30];
mul.wide.u32 %d1, %tid, 4;
add.u64 %d1, %d1, %out;
add.u32 %r32, {sum};
@%p1 st.global.u32 [%d1], %r32;
"""


@pytest.mark.parametrize(
    ("mask", "first", "second", "other", "total"),
    [
        ("4095", "", "+8", "+12", "%r32, %r34"),
        ("0xfff", "", "+8", "+12", "%r32, %r34"),
        ("0xff0f", "+8", "", "+4", "%r34, %r35"),
        ("65520", "+8", "+4", "", "%r33, %r35"),
    ],
)
def test_a_load_reads_what_it_says_to_use(mask: str, first: str, second: str, other: str, total: str) -> None:
    body = WIDENED.format(
        first=first, second=second, other=other, sum=total, pragma=f'.pragma "used_bytes_mask {mask}";'
    )
    done = run(body, ONE, block=96, profile="lenient").clean()
    np.testing.assert_array_equal(done.arrays["out"][:32], 10)
    whole = WIDENED.format(first=first, second=second, other=other, sum=total, pragma="")
    assert "race" in run(whole, ONE, block=96, profile="lenient").rules


def test_a_mask_of_used_bytes_is_a_number() -> None:
    body = WIDENED.format(
        first="", second="+8", other="+12", sum="%r32, %r33", pragma='.pragma "used_bytes_mask most";'
    )
    with pytest.raises(PtxError, match="used_bytes_mask takes one number, not 'most'"):
        run(body, ONE)
