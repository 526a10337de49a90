"""Rules of clusters: their barrier, the shared memory of other CTAs, CTA pairs, cancelled launches."""

from __future__ import annotations

from collections.abc import Mapping

from fmha.emulator.rules.rule import Rule, fault

CLUSTERS: Mapping[str, Rule] = {
    "cluster-rank": Rule(
        "9.7.9.23, mapa",
        "mapa to a rank that the cluster does not have. Lanes that use the address fault.",
        "Compare with %cluster_nctarank, in the lanes that do not use the result as well.",
        lenient=False,
    ),
    "cluster-barrier-arrival": fault(
        "9.7.13.3, barrier.cluster",
        "Threads arrive at the cluster's barrier again without having waited at it. The lenient profile lets a thread "
        "be one arrival ahead.",
        "One barrier.cluster.wait after each barrier.cluster.arrive.",
    ),
    "cluster-barrier-wait": fault(
        "9.7.13.3, barrier.cluster",
        "Threads wait at the cluster's barrier without having arrived.",
        "barrier.cluster.arrive first, by every thread that waits.",
    ),
    "cluster-exit-race": Rule(
        "5.1.7, Shared State Space",
        "A CTA exits while another CTA of the cluster may still access its shared memory, which is gone then.",
        "barrier.cluster.arrive and wait after the last such access, or an mbarrier of the owner that the others "
        "arrive on.",
        lenient=False,
    ),
    "mbarrier-remote": fault(
        "9.7.13.15, mbarrier",
        "An instruction that does not reach other CTAs, such as a wait, on an mbarrier of another CTA.",
        "Let the owner do it; arrive, expect_tx and complete_tx reach other CTAs.",
    ),
    "mbarrier-remote-state": fault(
        "9.7.13.15.13, mbarrier.arrive",
        "mbarrier.arrive asks for the state of an mbarrier of another CTA.",
        "Discard the result: the destination _.",
    ),
    "cta-pair": fault(
        "9.7.16.5.1, CTA Pair",
        "An instruction with cta_group::2 whose peer CTA does not exist, or whose peer executes something else: alloc "
        "or dealloc of other columns, or by two warps at once.",
        "Launch with an even cluster size, and have one warp of each CTA of the pair execute the same instruction.",
    ),
    "tmem-pair-alloc": Rule(
        "9.7.16.7.1, tcgen05.alloc, dealloc, relinquish_alloc_permit",
        "tcgen05.alloc with cta_group::2 by a warp that has not heard of the peer CTA: it has to make sure that the "
        "peer is launched.",
        "A cluster barrier (barrier.cluster.arrive and wait, relaxed is enough) before the allocation, in both CTAs.",
    ),
    "tmem-pair-dealloc": Rule(
        "9.7.16.7.1, tcgen05.alloc, dealloc, relinquish_alloc_permit",
        "tcgen05.dealloc with cta_group::2 while the peer CTA's tcgen05.alloc of the same columns may not be complete: "
        "a B300 ends the launch with an unspecified failure.",
        "A cluster barrier, or an mbarrier that the peer arrives on, between the allocation and the deallocation.",
    ),
    "mixed-cta-group": Rule(
        "9.7.16.5, Issue Granularity",
        "tcgen05 instructions of one kernel use both cta_group::1 and cta_group::2.",
        "Give all tcgen05 instructions the same cta_group.",
        lenient=False,
    ),
    "commit-mask": fault(
        "9.7.16.12.1, tcgen05.commit",
        "tcgen05.commit.multicast::cluster with a mask of no CTA.",
        "Set the bits of the CTAs whose mbarriers are to be signalled.",
    ),
    "cancel-after-refusal": Rule(
        "9.7.13.17, clusterlaunchcontrol.try_cancel",
        "A request to cancel a cluster after one that was not granted: undefined.",
        "Leave the loop at the first response that was not granted.",
    ),
    "cancel-refused": Rule(
        "9.7.13.18, clusterlaunchcontrol.query_cancel",
        "get_first_ctaid of a response to a request that was not granted: the value is undefined.",
        "is_canceled first, and only where it is true get_first_ctaid.",
        lenient=False,
    ),
}
