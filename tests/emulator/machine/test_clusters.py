"""Clusters: distributed shared memory, the cluster barrier, remote mbarriers, exits."""

from __future__ import annotations

import numpy as np
import pytest

from fmha.emulator import Device, PtxError, load_ptx
from fmha.emulator.device import SCHEDULES, LaunchError
from tests.emulator.clusterlab import CLUSTER_SYNC, init_barriers, run, source, wait

# The neighbour to the right in a ring of %r2 CTAs: its rank in %r1.
RIGHT = "mov.u32 %r2, %cluster_nctarank; add.u32 %r1, %rank, 1; rem.u32 %r1, %r1, %r2;\n"
# %d1: out + 4 * (cta * 32 + tid).
OUT = "mad.lo.u32 %r60, %cta, 32, %tid; mul.wide.u32 %d1, %r60, 4; add.u64 %d1, %d1, %out;\n"


def words(n: int) -> np.ndarray:
    return np.zeros(n, np.uint32)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("schedule", ["realistic", "random"])
def test_ring_through_distributed_shared_memory(size: int, schedule: str) -> None:
    body = f"""
    {RIGHT}
    mov.u32 %r3, tile; shl.b32 %r4, %tid, 2; add.u32 %r3, %r3, %r4;
    mapa.shared::cluster.u32 %r5, %r3, %r1;
    mad.lo.u32 %r6, %cta, 1000, %tid;
    {CLUSTER_SYNC}
    st.shared::cluster.u32 [%r5], %r6;
    {CLUSTER_SYNC}
    ld.shared.u32 %r7, [%r3];
    {OUT} st.global.u32 [%d1], %r7;
    """
    done = run(body, {"out": words(2 * size * 32)}, grid=2 * size, cluster=size, schedule=schedule, seed=size).clean()
    cta, tid = np.divmod(np.arange(2 * size * 32), 32)
    left = cta // size * size + (cta % size - 1) % size
    np.testing.assert_array_equal(done.arrays["out"], left * 1000 + tid)


def test_generic_addresses_of_other_ctas() -> None:
    body = f"""
    mov.u64 %d2, tile; cvta.shared.u64 %d2, %d2;
    xor.b32 %r1, %rank, 1;
    mapa.u64 %d3, %d2, %r1;
    getctarank.u64 %r2, %d3;
    getctarank.u64 %r3, %d2;
    cvta.to.shared::cluster.u64 %d4, %d3;
    getctarank.shared::cluster.u64 %r4, %d4;
    mad.lo.u32 %r5, %r2, 100, %r4; mad.lo.u32 %r5, %r3, 10, %r5;
    {CLUSTER_SYNC}
    @%leader st.u32 [%d3], %r5;
    {CLUSTER_SYNC}
    ld.u32 %r7, [%d2];
    {OUT} st.global.u32 [%d1], %r7;
    """
    done = run(body, {"out": words(64)}, grid=2, cluster=2).clean()
    # CTA 1 wrote to CTA 0: rank of the target 0, own rank 1.
    np.testing.assert_array_equal(done.arrays["out"], np.repeat([10, 101], 32))


def store_to_peer(before: str, after: str) -> str:
    return f"""
    mov.u32 %r3, tile; xor.b32 %r1, %rank, 1; mapa.shared::cluster.u32 %r5, %r3, %r1;
    {before}
    @%leader st.shared::cluster.u32 [%r5], %cta;
    {after}
    """


def test_exit_while_a_peer_may_still_access() -> None:
    read = "ld.shared.u32 %r7, [%r3];"
    good = run(store_to_peer(CLUSTER_SYNC, CLUSTER_SYNC + read), {"out": words(4)}, grid=2, cluster=2)
    assert good.rules == set()
    # The CTA's own end is all that is missing: nobody reads, so there is no race to see.
    bad = run(store_to_peer(CLUSTER_SYNC, ""), {"out": words(4)}, grid=2, cluster=2)
    assert bad.rules == {"cluster-exit-race"}


def test_a_relaxed_cluster_barrier_orders_exits_after_what_came_before_the_arrival() -> None:
    arrive, end = "barrier.cluster.arrive.relaxed.aligned;\n", "barrier.cluster.wait.aligned;\n"
    good = run(store_to_peer(CLUSTER_SYNC, arrive + end), {"out": words(4)}, grid=2, cluster=2)
    assert good.rules == set()
    bad = run(store_to_peer(CLUSTER_SYNC + arrive, end), {"out": words(4)}, grid=2, cluster=2)
    assert bad.rules == {"cluster-exit-race"}


def test_a_relaxed_cluster_barrier_orders_exits_but_not_data() -> None:
    relaxed = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
    assert run(store_to_peer(CLUSTER_SYNC, relaxed), {"out": words(4)}, grid=2, cluster=2).rules == set()
    read = relaxed + "ld.shared.u32 %r7, [%r3];"
    assert run(store_to_peer(CLUSTER_SYNC, read), {"out": words(4)}, grid=2, cluster=2).rules == {"race"}


@pytest.mark.parametrize(
    ("fence", "rules"),
    [
        ("fence.acq_rel.cluster;", set()),
        ("fence.sc.gpu;", set()),
        ("membar.gl;", set()),
        ("fence.acq_rel.cta;", {"race"}),
        ("fence.proxy.async;", {"race"}),
    ],
)
def test_a_fence_of_the_clusters_scope_releases_by_a_relaxed_cluster_barrier(fence: str, rules: set[str]) -> None:
    relaxed = fence + "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
    body = store_to_peer(CLUSTER_SYNC, relaxed + "ld.shared.u32 %r7, [%r3];" + CLUSTER_SYNC)
    assert run(body, {"out": words(4)}, grid=2, cluster=2).rules == rules


@pytest.mark.parametrize("arrive", ["barrier.cluster.arrive.aligned;", "barrier.cluster.arrive.relaxed.aligned;"])
@pytest.mark.parametrize(
    ("before", "after", "rules"),
    [
        (True, True, set()),
        (True, False, set()),
        (False, True, {"tmem-missing-fence-before"}),
        (False, False, {"tmem-missing-fence-before"}),
    ],
)
def test_tensor_memory_needs_execution_alone_to_be_ordered(
    arrive: str, before: bool, after: bool, rules: set[str]
) -> None:
    """Warp 0 deallocates what all warps have stored to; that is synchronous, and needs no fence behind the barrier."""
    body = f"""
    setp.lt.u32 %p1, %tid, 32;
    @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [word], 32;
    tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
    ld.shared.u32 %r1, [word];
    and.b32 %r2, %tid, 96; shl.b32 %r2, %r2, 16; add.u32 %r2, %r2, %r1;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2], {{%tid}};
    tcgen05.wait::st.sync.aligned;
    {"tcgen05.fence::before_thread_sync;" if before else ""}
    {arrive} barrier.cluster.wait.aligned;
    {"tcgen05.fence::after_thread_sync;" if after else ""}
    @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;
    """
    assert run(body, {"out": words(4)}, grid=2, cluster=2, block=128).rules == rules


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("barrier.cluster.wait;", "cluster-barrier-wait"),
        ("barrier.cluster.arrive; barrier.cluster.arrive;", "cluster-barrier-arrival"),
        ("setp.eq.u32 %p1, %rank, 0; @%p1 bra END; barrier.cluster.arrive; barrier.cluster.wait;END:", None),
        ("setp.eq.u32 %p1, %rank, 0; @%p1 barrier.cluster.arrive; barrier.cluster.arrive.relaxed;",
         "cluster-barrier-arrival"),
        ("mov.u32 %r1, 2; mov.u32 %r2, tile; mapa.shared::cluster.u32 %r3, %r2, %r1;", "cluster-rank"),
        ("mapa.u64 %d2, %out, 0;", "address-space"),
        ("mov.u32 %r1, tile; xor.b32 %r1, %r1, 0x1000000; ld.shared::cta.u32 %r2, [%r1];", "shared-out-of-bounds"),
        ("mov.u32 %r1, tile; or.b32 %r1, %r1, 0x5000000; ld.shared::cluster.u32 %r2, [%r1];", "shared-out-of-bounds"),
    ],
)  # fmt: skip
def test_misuse(body: str, rule: str | None) -> None:
    assert run(body, {"out": words(4)}, grid=2, cluster=2).rules == ({rule} if rule else set())


def test_an_address_of_a_rank_that_is_not_there() -> None:
    """FlashAttention-4 maps every lane number to a rank, and uses two of them."""
    body = "mov.u32 %r2, tile; mapa.shared::cluster.u32 %r3, %r2, %tid; setp.lt.u32 %p1, %tid, USED;"
    body = CLUSTER_SYNC + body + " @%p1 st.shared::cluster.u32 [%r3], %tid;" + CLUSTER_SYNC
    for profile, rules in (("lenient", set()), ("strict", {"cluster-rank"})):
        used = run(body.replace("USED", "2"), {"out": words(4)}, grid=2, cluster=2, profile=profile).rules
        assert used - {"race"} == rules  # both CTAs store
        beyond = run(body.replace("USED", "3"), {"out": words(4)}, grid=2, cluster=2, profile=profile).rules
        assert beyond - {"race"} == rules | {"shared-out-of-bounds"}


def test_lanes_of_a_warp_may_arrive_at_different_instructions() -> None:
    body = f"""
    and.b32 %r1, %tid, 1; setp.eq.u32 %p1, %r1, 0;
    @%p1 bra EVEN;
    barrier.cluster.arrive; barrier.cluster.wait; bra JOIN;
    EVEN: barrier.cluster.arrive; barrier.cluster.wait;
    JOIN: {OUT} st.global.u32 [%d1], 7;
    """
    done = run(body, {"out": words(64)}, grid=2, cluster=2).clean()
    assert (done.arrays["out"] == 7).all()


_AT_CTA = "parity.acquire.cta."  # a wait with that scope


def test_remote_arrivals_carry_their_releases() -> None:
    """CTA 1 fills CTA 0's tile and arrives on its mbarrier; CTA 0 waits and reads."""

    def body(arrive: str, settle: str = CLUSTER_SYNC) -> str:
        return f"""
        {init_barriers(32)}
        mov.u32 %r3, tile; shl.b32 %r4, %tid, 2; add.u32 %r3, %r3, %r4; mov.u32 %r9, bar;
        mapa.shared::cluster.u32 %r5, %r3, 0; mapa.shared::cluster.u32 %r8, %r9, 0;
        setp.eq.u32 %p1, %rank, 0; @%p1 bra READER;
        add.u32 %r6, %tid, 5; st.shared::cluster.u32 [%r5], %r6;
        {arrive}
        bra END;
        READER: {wait()}
        ld.shared.u32 %r7, [%r3]; {OUT} st.global.u32 [%d1], %r7;
        END: {settle}
        """

    arrive = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];"
    done = run(body(arrive), {"out": words(64)}, grid=2, cluster=2).clean()
    np.testing.assert_array_equal(done.arrays["out"][:32], np.arange(32) + 5)
    relaxed = "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r8];"
    assert run(body(relaxed), {"out": words(64)}, grid=2, cluster=2).rules == {"race"}
    for narrow in (body(arrive.replace("release.cluster", "release.cta")), body(arrive).replace("parity.", _AT_CTA)):
        report = run(narrow, {"out": words(64)}, grid=2, cluster=2).report
        assert {f.rule for f in report.findings} == {"scope-too-narrow"}
        assert run(narrow, {"out": words(64)}, grid=2, cluster=2, profile="lenient").rules == set()
    # A fence of the cluster's scope behind the wait acquires what the wait has left out; one before the arrival
    # releases.
    fenced = body("fence.acq_rel.cluster;" + arrive.replace("release.cluster", "release.cta"))
    assert run(fenced, {"out": words(64)}, grid=2, cluster=2).rules == set()
    fenced = body(arrive).replace("parity.", _AT_CTA).replace("ld.shared", "fence.acq_rel.cluster; ld.shared")
    assert run(fenced, {"out": words(64)}, grid=2, cluster=2).rules == set()
    # The reader's wait orders the writer's accesses before its exit; nothing else is accessed.
    assert run(body(arrive, ""), {"out": words(64)}, grid=2, cluster=2).rules == set()


def test_remote_initialisation_needs_the_cluster_barrier() -> None:
    init = "@%leader mbarrier.init.shared::cta.b64 [bar], 32;\n"
    relaxed = "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n"
    use = f"""
    mov.u32 %r9, bar; xor.b32 %r1, %rank, 1; mapa.shared::cluster.u32 %r8, %r9, %r1;
    mbarrier.arrive.shared::cluster.b64 _, [%r8]; {wait()}
    """
    fence = "fence.mbarrier_init.release.cluster;\n"
    assert run(init + fence + relaxed + use, {"out": words(4)}, grid=2, cluster=2).rules == set()
    assert "mbarrier-race" in run(init + relaxed + use, {"out": words(4)}, grid=2, cluster=2).rules


@pytest.mark.parametrize("handed_on", [True, False])
def test_remote_initialisation_reaches_a_warp_through_its_own_cta(handed_on: bool) -> None:
    """As in Meta's TLX, one warp waits at the cluster barrier; another uses the peer's mbarrier behind `bar.sync`."""
    body = f"""
    @%leader mbarrier.init.shared::cta.b64 [bar], 1;
    @%leader fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.relaxed.aligned;
    setp.lt.u32 %p1, %tid, 32;
    @%p1 barrier.cluster.wait.aligned;
    {"bar.sync 0;" if handed_on else ""}
    mov.u32 %r9, bar; xor.b32 %r1, %rank, 1; mapa.shared::cluster.u32 %r8, %r9, %r1;
    setp.eq.u32 %p2, %tid, 32;
    @%p2 mbarrier.arrive.shared::cluster.b64 _, [%r8];
    @%p1 bra WAIT; bra DONE;
    WAIT: {wait()} DONE:
    """
    rules = run(body, {"out": words(4)}, grid=2, block=64, cluster=2).rules
    assert rules == (set() if handed_on else {"mbarrier-race"})


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_arrival_ahead_of_the_wait(schedule: str) -> None:
    """FlashAttention-4's MLA kernels arrive twice, then wait twice: leniently, at two phases."""
    arrive, pause = "barrier.cluster.arrive.aligned;\n", "barrier.cluster.wait.aligned;\n"
    read = "ld.shared.u32 %r7, [%r3]; " + OUT + "st.global.u32 [%d1], %r7;" + CLUSTER_SYNC

    def outcome(sync: str, profile: str = "lenient") -> set[str]:
        body = store_to_peer(CLUSTER_SYNC, sync + read)
        done = run(body, {"out": words(64)}, grid=2, cluster=2, profile=profile, schedule=schedule, seed=3)
        if not done.rules:
            np.testing.assert_array_equal(done.arrays["out"].reshape(2, 32)[:, 0], [1, 0])
        return done.rules

    assert outcome(2 * arrive + 2 * pause, "strict") == {"cluster-barrier-arrival"}
    assert outcome(2 * arrive + 2 * pause) == set()
    assert outcome(2 * arrive + pause + arrive + 2 * pause) == set()
    assert outcome(3 * arrive + 3 * pause) == {"cluster-barrier-arrival"}


def test_remote_forms_that_do_not_exist() -> None:
    for text in (
        "mbarrier.init.shared::cluster.b64 [%r1], 1;",
        "mbarrier.try_wait.parity.shared::cluster.b64 %p1, [%r1], 0;",
        "mbarrier.arrive.shared::cluster.b64 %d1, [%r1];",
    ):
        device = Device()
        with pytest.raises(PtxError, match="shared::cluster"):
            device.launch(load_ptx(source(text, {}, {})), "kernel", (1, 1, 1), (32, 1, 1), [])
    body = f"""{init_barriers(32)}
    mov.u32 %r9, bar; mapa.shared::cluster.u32 %r8, %r9, 1;
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r8], 0;{CLUSTER_SYNC}"""
    assert run(body, {"out": words(4)}, grid=2, cluster=2).rules == {"mbarrier-remote"}


def test_transaction_counts_without_copies() -> None:
    """complete_tx of a peer releases a wait; the bytes have to match."""

    def body(completed: int) -> str:
        return f"""
        {init_barriers(1)}
        mov.u32 %r9, bar; xor.b32 %r1, %rank, 1; mapa.shared::cluster.u32 %r8, %r9, %r1;
        @%leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;
        @%leader mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r8], {completed};
        {wait()} {CLUSTER_SYNC}
        """

    assert run(body(64), {"out": words(4)}, grid=2, cluster=2).rules == set()
    assert run(body(48), {"out": words(4)}, grid=2, cluster=2).rules == {"deadlock"}


def test_bytes_that_nothing_has_announced_hold_their_phase() -> None:
    """All have arrived, and sixteen bytes more than were expected: the phase ends once they are."""
    look = "mbarrier.test_wait.parity.shared::cta.b64 %p1, [bar], 0; selp.u32 {}, 1, 0, %p1;"
    body = f"""{init_barriers(1)} mov.u32 %r8, bar;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r8], 16; mbarrier.arrive.shared::cta.b64 _, [bar];
    {look.format("%r1")}
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 16;
    {look.format("%r2")}
    st.global.v2.u32 [%out], {{%r1, %r2}};"""
    assert run(body, {"out": words(2)}, block=1).clean().arrays["out"].tolist() == [0, 1]


@pytest.mark.parametrize("schedule", ["realistic", "random"])
def test_a_cta_may_arrive_and_exit_long_before_the_other_arrives(schedule: str) -> None:
    """What it has written is known by the barrier: its lanes that are gone do not complete the barrier alone."""
    body = f"""{CLUSTER_SYNC} setp.ne.u32 %p1, %rank, 0;
    mov.u32 %r9, tile; mapa.shared::cluster.u32 %r8, %r9, 1;
    @%p1 bra LATE;
    @%leader st.shared::cluster.u32 [%r8], 7;
    barrier.cluster.arrive.aligned;
    ret;
    LATE: mov.u32 %r1, 0;
    LOOP: add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 500; @%p2 bra LOOP;
    {CLUSTER_SYNC}
    @%leader ld.shared.u32 %r2, [tile]; @%leader st.global.u32 [%out], %r2;"""
    done = run(body, {"out": words(1)}, grid=2, cluster=2, schedule=schedule).clean()
    assert done.arrays["out"].tolist() == [7]


def test_dropped_and_pending_arrivals() -> None:
    body = f"""
    {init_barriers(3)}
    mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %d2, [bar], 1;
    mbarrier.pending_count.b64 %r1, %d2;
    mbarrier.arrive_drop.shared::cta.b64 %d3, [bar], 2;
    mbarrier.pending_count.b64 %r2, %d3;
    LOOP: mbarrier.test_wait.shared::cta.b64 %p1, [bar], %d3; @!%p1 bra LOOP;
    mbarrier.arrive.shared::cta.b64 %d4, [bar];
    mbarrier.pending_count.b64 %r3, %d4;
    AGAIN: mbarrier.test_wait.shared::cta.b64 %p1, [bar], %d4; @!%p1 bra AGAIN;
    mad.lo.u32 %r4, %r1, 100, %r3; mad.lo.u32 %r4, %r2, 10, %r4;
    {OUT} st.global.u32 [%d1], %r4;
    """
    done = run(body, {"out": words(1)}, block=1).clean()
    assert done.arrays["out"][0] == 321
    too_many = "mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %d2, [bar], 3;"
    assert run(init_barriers(3) + too_many, {"out": words(1)}, block=1).rules == {"mbarrier-no-complete"}


def test_launches_that_the_driver_refuses() -> None:
    def launch(directives: str, grid: int, cluster: tuple[int, int, int] | None) -> None:
        module = load_ptx(source("", {}, {}, directives))
        Device().launch(module, "kernel", (grid, 1, 1), (32, 1, 1), [], cluster=cluster)

    launch(".explicitcluster .reqnctapercluster 2, 1, 1", 4, None)
    launch(".maxclusterrank 4", 4, (4, 1, 1))
    for directives, grid, cluster, message in (
        ("", 5, (2, 1, 1), "no multiple"),
        ("", 32, (32, 1, 1), "1..16"),
        (".reqnctapercluster 2, 1, 1", 8, (4, 1, 1), "requires"),
        (".reqnctapercluster 2, 1, 1", 3, None, "no multiple"),
        (".explicitcluster", 4, None, "explicitcluster"),
        (".maxclusterrank 4", 8, (8, 1, 1), "allows 4"),
    ):
        with pytest.raises(LaunchError, match=message):
            launch(directives, grid, cluster)


@pytest.mark.parametrize(("flip", "rules"), [(0, set()), (1, {"mbarrier-remote-state"})])
def test_an_arrival_returns_the_state_of_an_own_mbarrier_only(flip: int, rules: set[str]) -> None:
    body = f"""
    {init_barriers(1)}
    mov.u64 %d2, bar; cvta.shared.u64 %d2, %d2;
    xor.b32 %r1, %rank, {flip}; mapa.u64 %d3, %d2, %r1;
    @%leader mbarrier.arrive.b64 %d4, [%d3];
    {wait()} {CLUSTER_SYNC}
    """
    assert run(body, {"out": words(4)}, grid=2, cluster=2).rules == rules
