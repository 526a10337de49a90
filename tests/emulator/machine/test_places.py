"""What a finding in shared memory says of where: the CTA in the grid and in its cluster, and what memory it has."""

from __future__ import annotations

import numpy as np
import pytest

from fmha import emulator
from tests.emulator.clusterlab import CLUSTER_SYNC, run, source

OUT = {"out": np.zeros(4, np.uint32)}
TWO_WARPS_STORE = "setp.eq.u32 %p1, %tid, 32; @%leader st.shared.u32 [tile], 1; @%p1 st.shared.u32 [tile], 2;"
DYNAMIC = """.version 8.8
.target sm_100a
.address_size 64
.shared .align 4 .b32 own;
.extern .shared .align 16 .b8 more[];
.visible .entry kernel() { st.shared.b32 [own], 0; st.shared.b32 [more+128], 0; ret; }
"""


def _message(body: str, grid: int, cluster: int | None = None, block: int = 64) -> str:
    (finding,) = run(body, OUT, grid=grid, cluster=cluster, block=block).report.findings
    return finding.message


def test_the_cta_of_a_grid() -> None:
    last = "setp.ne.u32 %p0, %cta, 2; @%p0 bra END;" + TWO_WARPS_STORE + "END:"
    message = _message(last, grid=3)
    assert message.startswith("warp 1 writes shared memory in [")
    assert message.endswith(") of CTA 2, which warp 0 wrote with no synchronisation in between")


def test_the_cta_of_a_grid_of_several_dimensions() -> None:
    device = emulator.Device()
    last = ".reg .b32 %y; mov.u32 %y, %ctaid.y; setp.ne.u32 %p0, %y, 1; setp.ne.or.u32 %p0, %cta, 2, %p0; @%p0 bra END;"
    module = emulator.load_ptx(source(last + TWO_WARPS_STORE + "END:", {}, {}))
    (finding,) = device.launch(module, "kernel", (3, 2, 1), (64, 1, 1), []).findings
    assert ") of CTA 5 (2, 1, 0), which warp 0 wrote" in finding.message


def test_the_rank_in_a_cluster_and_whose_warp_it_was() -> None:
    """CTA 3 stores to CTA 2, which reads without waiting."""
    body = f"""
    mov.u32 %r3, tile; mov.u32 %r1, 0; mapa.shared::cluster.u32 %r5, %r3, %r1;
    setp.eq.u32 %p1, %cta, 3; setp.eq.u32 %p2, %cta, 2;
    {CLUSTER_SYNC}
    @%p1 st.shared::cluster.u32 [%r5], 1;
    barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;
    @%p2 ld.shared.u32 %r7, [tile];
    """
    message = _message(body, grid=4, cluster=2, block=32)
    assert message.startswith("warp 0 of CTA 2 reads shared memory in [")
    assert ") of CTA 2, rank 0 of its cluster, which warp 0 of CTA 3 wrote with" in message


def test_an_mbarrier_that_an_asynchronous_arrival_overruns() -> None:
    """No warp arrives: the tensor core does, in CTA 1."""
    body = f"""
    setp.ne.u32 %p0, %cta, 1; @%p0 bra END;
    @%leader mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
    @%leader mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [bar], 16;
    @%leader tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
    END:
    {CLUSTER_SYNC}
    """
    findings = run(body, OUT, grid=2, schedule="early").report.findings
    over = [f for f in findings if f.rule == "mbarrier-over-arrival"]
    assert over
    assert all(f.cta == 1 and "of CTA 1" in f.message for f in over)


@pytest.mark.parametrize("given", [0, 128])
def test_dynamic_shared_memory_that_the_launch_did_not_give(given: int) -> None:
    module = emulator.load_ptx(DYNAMIC)
    device = emulator.Device()
    (finding,) = device.launch(module, "kernel", (1, 1, 1), (1, 1, 1), [], shared_bytes=given).findings
    assert finding.rule == "shared-out-of-bounds"
    assert f"bytes of its own arrays, and the launch gave {given} bytes of dynamic shared memory" in finding.message
    assert not device.launch(module, "kernel", (1, 1, 1), (1, 1, 1), [], shared_bytes=132).findings
