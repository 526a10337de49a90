"""What released compilers were seen to emit, each habit in its smallest form: legal ones are clean under both profiles,
those that break a rule without harm only under the lenient one, and the nearest wrong program is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fmha.emulator import PtxError
from tests.emulator.clusterlab import CLUSTER_SYNC, Run, init_barriers, run, wait

ONE = {"out": np.zeros(256, np.uint32), "space": np.zeros(128, np.uint8)}

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


def test_the_plain_load_may_use_another_register_with_the_same_address() -> None:
    """As where the pointer is generic in the loop and global before it, or computed anew."""
    loop = SWAP_LOOP.replace("ld.global.u32 %r40, [%out];", "cvta.to.global.u64 %d1, %out; add.u64 %d2, %d1, 8;"
                             "ld.global.u32 %r40, [%d2];")  # fmt: skip
    loop = loop.replace("AGAIN:", "add.u64 %d3, %out, 8;\nAGAIN:").replace("atom.global", "atom")
    done = run(loop.format(target="%d3"), ONE, grid=3, block=64, profile="lenient").clean()
    assert done.arrays["out"][2] == 6
    assert run(loop.format(target="%d3"), ONE, grid=3, block=64).rules == {"race"}


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
    assert "race" in run(whole, ONE, block=96).rules  # leniently, what it loads besides is dropped


def test_a_mask_of_used_bytes_is_a_number() -> None:
    body = WIDENED.format(
        first="", second="+8", other="+12", sum="%r32, %r33", pragma='.pragma "used_bytes_mask most";'
    )
    with pytest.raises(PtxError, match="used_bytes_mask takes one number, not 'most'"):
        run(body, ONE)
