"""What released kernels do across the CTAs of a cluster, and which profile lets it pass."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.clusterlab import CLUSTER_SYNC, init_barriers, run, wait

OUT = {"out": np.zeros(4, np.uint32)}


@pytest.mark.parametrize("profile", ["strict", "lenient"])
def test_what_released_kernels_expect_of_a_relaxed_cluster_barrier(profile: str) -> None:
    """DeepGEMM's pairs reuse their own CTA's memory after one, CUTLASS's GEMMs the barriers initialised before it."""
    relaxed = "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n"
    read = f"{relaxed} ld.shared.u32 %r7, [tile+4]; @%leader st.global.u32 [%out], %r7; {CLUSTER_SYNC}"
    own = "setp.eq.u32 %p1, %tid, 32; @%p1 st.shared.u32 [tile+4], 1;\n"
    remote = "mov.u32 %r9, {array}; xor.b32 %r1, %rank, 1; mapa.shared::cluster.u32 %r8, %r9, %r1;\n"
    peer = remote.format(array="tile") + "@%leader st.shared::cluster.u32 [%r8+4], 1;\n"
    init = "@%leader mbarrier.init.shared::cta.b64 [bar], 1;\n" + relaxed + remote.format(array="bar")
    init += f"@%leader mbarrier.arrive.shared::cluster.b64 _, [%r8]; {wait()} {CLUSTER_SYNC}"

    def rules(body: str) -> set[str]:
        return run(body, OUT, grid=2, block=64, cluster=2, profile=profile).rules

    strict = profile == "strict"
    assert ("race" in rules(own + read)) is strict
    assert ("mbarrier-race" in rules(init)) is strict
    assert "race" in rules(CLUSTER_SYNC + peer + read)  # not the data of another CTA


@pytest.mark.parametrize("seed", range(4))
def test_a_peer_that_arrives_at_an_invalidated_mbarrier(seed: int) -> None:
    """Triton's pairs: leniently, an arrival that nobody waits for comes before or after mbarrier.inval."""
    body = f"""
    {init_barriers()}
    setp.eq.u32 %p1, %rank, 1; and.pred %p2, %p1, %leader; xor.b32 %r1, %rank, 1;
    mov.u32 %r9, bar; mapa.shared::cluster.u32 %r8, %r9, %r1;
    @%p2 mbarrier.arrive.shared::cluster.b64 _, [%r8];
    not.pred %p3, %p1; and.pred %p3, %p3, %leader;
    @%p3 mbarrier.inval.shared::cta.b64 [bar];
    {CLUSTER_SYNC}
    """

    def rules(text: str, profile: str) -> set[str]:
        options = {"grid": 2, "cluster": 2, "profile": profile, "schedule": "random", "seed": seed}
        return run(text, OUT, **options).rules

    assert rules(body, "strict") & {"mbarrier-inval-race", "mbarrier-uninitialised"}
    assert rules(body, "lenient") == set()
    end = body.rindex(CLUSTER_SYNC)
    own = body[:end] + "@%p3 mbarrier.arrive.shared::cta.b64 _, [bar];\n" + CLUSTER_SYNC
    assert "mbarrier-uninitialised" in rules(own, "lenient")


@pytest.mark.parametrize("profile", ["strict", "lenient"])
def test_a_peer_that_overwrites_after_a_relaxed_cluster_barrier(profile: str) -> None:
    """Triton's kernels of four CTAs: a copy into what another CTA used before the barrier."""
    relaxed = "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n"
    copy = f"""
    setp.eq.u32 %p1, %rank, 0; and.pred %p1, %p1, %leader;
    mov.u32 %r5, 1; mov.u32 %r9, tile; mapa.shared::cluster.u32 %r8, %r9, %r5;
    mov.u32 %r9, bar; mapa.shared::cluster.u32 %r7, %r9, %r5;
    setp.eq.u32 %p2, %rank, 1; and.pred %p2, %p2, %leader;
    @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%x], 16, [%r7];
    setp.ne.u32 %p3, %rank, 1; @%p3 bra DONE; {wait()} DONE: {CLUSTER_SYNC}
    """
    use = "setp.eq.u32 %p4, %rank, 1; and.pred %p4, %p4, %leader; @%p4 st.shared.u32 [tile], 1;\n"

    def rules(body: str) -> set[str]:
        return run(body, OUT | {"x": np.zeros(4, np.uint32)}, grid=2, cluster=2, profile=profile).rules

    assert ("race" in rules(init_barriers() + use + relaxed + copy)) is (profile == "strict")
    assert rules(init_barriers() + relaxed + use + copy) & {"race", "bulk-copy-in-flight"}
