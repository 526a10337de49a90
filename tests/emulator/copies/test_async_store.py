"""st.async and red.async: stores to a peer's shared memory that complete its mbarrier."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fmha.emulator import Device, PtxError, load_ptx
from tests.emulator.clusterlab import CLUSTER_SYNC, init_barriers, run, source, wait

SCHEDULES = ["realistic", "early", "late", "random"]
TX = "mbarrier::complete_tx::bytes"


def to_peer(text: str, expected: int, before: str = "", waiting: str = "", init: str = "") -> str:
    """Both CTAs run `text`, which finds the peer's `tile` in %r10, its `bar` in %r11 and %tid * 16 in %r12; then each
    waits for `expected` bytes and copies 16 bytes a lane from its tile to `out`."""
    return f"""
    {init_barriers(1)}
    mov.u32 %r8, tile; mov.u32 %r9, bar; xor.b32 %r1, %rank, 1; shl.b32 %r12, %tid, 4; add.u32 %r13, %r8, %r12;
    {init}
    mapa.shared::cluster.u32 %r10, %r13, %r1; mapa.shared::cluster.u32 %r11, %r9, %r1;
    @%leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {expected};
    {CLUSTER_SYNC} {before}
    mad.lo.u32 %r20, %rank, 1000, %tid; add.u32 %r21, %r20, 100; add.u32 %r22, %r20, 200; add.u32 %r23, %r20, 300;
    {text}
    {waiting or wait()}
    ld.shared.v4.u32 {{%r30, %r31, %r32, %r33}}, [%r13];
    mad.lo.u32 %r60, %cta, 32, %tid; mul.wide.u32 %d1, %r60, 16; add.u64 %d1, %d1, %out;
    st.global.v4.u32 [%d1], {{%r30, %r31, %r32, %r33}};
    {CLUSTER_SYNC}
    """


VECTOR = f"st.async.weak.shared::cluster.{TX}.v4.b32 [%r10], {{%r20, %r21, %r22, %r23}}, [%r11];"
OUT = {"out": np.zeros((2, 32, 4), np.uint32)}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stores_arrive_with_their_bytes(schedule: Any) -> None:
    done = run(to_peer(VECTOR, 512), OUT, grid=2, cluster=2, schedule=schedule).clean()
    sender = np.array([1000, 0])[:, None, None]
    want = sender + np.arange(32)[None, :, None] + np.array([0, 100, 200, 300])
    np.testing.assert_array_equal(done.arrays["out"], want)


def test_64_bits_at_a_time() -> None:
    pair = f"mov.b64 %d2, {{%r20, %r21}}; mov.b64 %d3, {{%r22, %r23}};\nst.async.shared::cluster.{TX}.v2.u64"
    done = run(to_peer(f"{pair} [%r10], {{%d2, %d3}}, [%r11];", 512), OUT, grid=2, cluster=2).clean()
    assert done.arrays["out"][0, 5].tolist() == [1005, 1105, 1205, 1305]


ZERO = "st.shared.v4.u32 [%r13], {0, 5, 0, 0};"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_reductions_of_many_lanes_into_one_word(schedule: Any) -> None:
    text = f"""sub.u32 %r10, %r10, %r12; add.u32 %r14, %r10, 4;
    red.async.relaxed.cluster.shared::cluster.{TX}.add.u32 [%r10], %tid, [%r11];
    red.async.relaxed.cluster.shared::cluster.{TX}.max.s32 [%r14], %tid, [%r11];"""
    done = run(to_peer(text, 256, init=ZERO), OUT, grid=2, cluster=2, schedule=schedule).clean()
    assert done.arrays["out"][:, 0].tolist() == [[sum(range(32)), 31, 0, 0]] * 2


def test_what_is_missing_is_reported() -> None:
    early = run(to_peer(VECTOR, 512, waiting=" "), OUT, grid=2, cluster=2)
    assert "bulk-copy-in-flight" in early.rules or "uninitialised-shared" in early.rules
    assert run(to_peer(VECTOR, 528), OUT, grid=2, cluster=2).rules == {"deadlock"}
    assert "mbarrier-early-completion" in run(to_peer(VECTOR, 496), OUT, grid=2, cluster=2, schedule="late").rules
    used = "ld.shared.u32 %r40, [%r13];"
    raced = run(to_peer(VECTOR, 512, before=used, init=ZERO), OUT, grid=2, cluster=2)
    assert raced.rules == {"race", "bulk-copy-in-flight"}


def test_faults() -> None:
    odd = VECTOR.replace("[%r10]", "[%r10+4]")
    assert run(to_peer(odd, 512), OUT, grid=2, cluster=2).rules == {"misaligned"}
    own = VECTOR.replace("[%r11]", "[%r9]")
    assert run(to_peer(own, 512), OUT, grid=2, cluster=2).rules == {"bulk-copy-mbarrier"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("st.async.release.gpu.b32 [%d1], %r1;", "complete_tx"),
        (f"red.async.shared::cluster.{TX}.add.f32 [%r1], %f1, [%r2];", "type"),
        (f"st.async.shared::cluster.{TX}.v2.b32 [%r1], {{%r1, %r2, %r3}}, [%r2];", "2 registers"),
    ],
)
def test_refused_forms(text: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        Device().launch(load_ptx(source(text, {}, {})), "kernel", (1, 1, 1), (1, 1, 1), [])


# DeepGEMM's fused kernels: CTAs tell others through a counter in global memory that their part is written.
COUNT = """
setp.eq.u32 %p1, %cta, 0; setp.eq.and.u32 %p2, %tid, 0, %p1; setp.ne.and.u32 %p3, %tid, 0, %p1;
@%p3 bra END;
@%p2 bra READ;
mul.wide.u32 %d1, %cta, 4; add.u64 %d1, %d1, %out;
@%leader st.global.u32 [%d1], %cta;
bar.sync 0;
@%leader {signal};
bra END;
READ: ld.acquire.gpu.global.u32 %r1, [%out];
setp.ne.u32 %p1, %r1, 2; @%p1 bra READ;
ld.global.u32 %r2, [%out+4]; ld.global.u32 %r3, [%out+8]; add.u32 %r2, %r2, %r3;
st.global.u32 [%out+12], %r2;
END:
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_reduction_in_global_memory_releases(schedule: Any) -> None:
    arrays = {"out": np.zeros(4, np.uint32)}
    release = COUNT.format(signal="red.async.release.gpu.global.add.u32 [%out], 1")
    assert run(release, arrays, grid=3, schedule=schedule).clean().arrays["out"].tolist() == [2, 1, 2, 3]
    relaxed = COUNT.format(signal="red.async.relaxed.gpu.global.add.u32 [%out], 1")
    assert run(relaxed, arrays, grid=3, schedule=schedule).rules == {"race"}


def test_a_store_to_global_memory_releases() -> None:
    arrays = {"out": np.zeros(4, np.uint32)}
    store = COUNT.format(signal="st.async.mmio.release.sys.global.u32 [%out], %two")
    done = run(".reg .b32 %two; mov.u32 %two, 2;" + store, arrays, grid=2)
    assert done.clean().arrays["out"].tolist() == [2, 1, 0, 1]
