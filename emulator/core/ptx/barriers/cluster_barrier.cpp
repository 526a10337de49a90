// Clusters: shared memory of other CTAs (mapa, getctarank), the cluster barrier, and what a CTA owes the others before
// it exits.
#include "ptx/barriers/cluster_barrier.hpp"

#include "isa/handlers.hpp"
#include "machine/machine.hpp"

namespace ptxm {
namespace {

// mapa{.shared::cluster}: the address of the same variable in the CTA of a rank (PTX ISA 9.7.9.23). Without a space the
// operand and the result are generic. A rank that the cluster does not have gives an address that is no one's: lanes
// that use it fault.
Flow mapa(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const Cluster& cluster = *w.cta->cluster;
    const bool generic = static_cast<Space>((i.mods & kSpaceMask) >> kSpaceShift) == Space::generic;
    const u32* rank = w.reg<u32>(o[2]);
    const u32 size = static_cast<u32>(cluster.ctas.size());
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const u64 a = i.width_src == 64 ? w.reg<u64>(o[1])[l] : w.reg<u32>(o[1])[l];
        if (generic && (a & kWindowMask) != kSharedWindow)
            throw Fault("address-space", format("mapa of 0x%llx, which is no shared address", (unsigned long long)a));
        if (rank[l] >= size)
            machine_of(w).report_strict(&w, "cluster-rank",
                                        format("mapa to CTA rank %u of a cluster of %u", rank[l], size), w.pc());
        const u32 named = std::min(rank[l], 0xFFu);
        const u64 mapped = (generic ? kSharedWindow : 0) | named << kSharedRankShift | (a & kSharedOffsetMask);
        if (i.width_dst == 64)
            w.reg<u64>(o[0])[l] = mapped;
        else
            w.reg<u32>(o[0])[l] = static_cast<u32>(mapped);
    }
    return Flow::next;
}

Flow getctarank(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const bool generic = static_cast<Space>((i.mods & kSpaceMask) >> kSpaceShift) == Space::generic;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const u64 a = i.width_src == 64 ? w.reg<u64>(o[1])[l] : w.reg<u32>(o[1])[l];
        if (generic && (a & kWindowMask) != kSharedWindow)
            throw Fault("address-space",
                        format("getctarank of 0x%llx, which is no shared address", (unsigned long long)a));
        w.reg<u32>(o[0])[l] = static_cast<u32>(a & ~kWindowMask) >> kSharedRankShift;
    }
    return Flow::next;
}

u32 live_lanes(const Cluster& cluster) {
    u32 n = 0;
    for (const auto& cta : cluster.ctas)
        for (const Warp& w : cta->warps) n += static_cast<u32>(std::popcount(w.live));
    return n;
}

void complete(Cluster& cluster) {
    ClusterBarrier& b = cluster.barrier;
    const bool lenient = cluster.machine->profile == Profile::lenient;
    b.phase += 1;
    b.arrived = 0;
    b.completed = std::move(b.arriving);
    b.arriving = std::move(b.early);
    b.early = Message{};
    cluster.note_progress();
    for (auto& cta : cluster.ctas) {
        // A CTA may exit after a cluster barrier even if that barrier's arrivals were relaxed: it orders execution.
        if (cluster.ctas.size() > 1) cta->exit_ordered.join(b.reached);
        cta->relaxed_completed.join(cta->relaxed_arriving);
        cta->relaxed_arriving = Message{};
        for (auto& [offset, bar] : cta->mbarriers) {
            // CUTLASS's GEMMs initialise the last of their barriers after the fence.
            const bool reached = lenient && b.reached.get(bar.init.agent) >= bar.init.clock;
            if ((bar.init_fenced || reached) && !bar.init_published) bar.init_published = b.phase;
        }
        for (Warp& w : cta->warps) {
            w.cluster_owed |= w.cluster_passed & w.cluster_arrived;
            w.cluster_passed |= w.cluster_arrived;
            w.cluster_arrived = w.cluster_ahead;
            w.cluster_ahead = 0;
            b.arrived += static_cast<u32>(std::popcount(w.cluster_arrived));
            for (Fragment& f : w.fragments)
                if (f.wait == Wait::cluster) f.wait = Wait::none;
        }
    }
    b.reached.clear();
}

void settle(Cluster& cluster) {
    while (cluster.barrier.arrived && cluster.barrier.arrived == live_lanes(cluster)) complete(cluster);
}

// What a relaxed arrival brings (PTX ISA 9.7.13.3): no memory access of its own, but what a fence before it releases,
// and the order of tcgen05 operations, which needs execution alone to be ordered, as at an mbarrier.
void arrive_relaxed(Warp& w, Message& arriving) {
    arriving.join(w.cta->cluster->ctas.size() > 1 ? w.fences.fenced_beyond_cta : w.fences.fenced);
    w.clocks.release_tc(arriving);
}

// barrier.cluster.arrive. DeepGEMM's kernels rely on a relaxed one all the same for their own CTA's shared and tensor
// memory, where all that arrived share an SM.
//
// The ISA wants a wait between two arrivals. FlashAttention-4's MLA kernels arrive twice and wait twice: leniently, the
// second arrival is of the next phase.
Flow cluster_arrive(Warp& w, const Inst& i, u32 mask) {
    Cluster& cluster = *w.cta->cluster;
    const bool lenient = cluster.machine->profile == Profile::lenient;
    const u32 ahead = mask & w.cluster_arrived;
    const u32 waiting = lenient ? w.cluster_ahead | w.cluster_owed | (w.cluster_passed & w.cluster_arrived)
                                : w.cluster_arrived | w.cluster_passed;
    if (const u32 twice = mask & waiting)
        throw Fault(
            "cluster-barrier-arrival",
            format("lanes 0x%08x arrive at the cluster barrier again with no barrier.cluster.wait in between", twice));
    w.clocks.add_shared_to(cluster.barrier.reached);
    Message& arriving = ahead ? cluster.barrier.early : cluster.barrier.arriving;
    if (i.mods & kClusterRelaxed) arrive_relaxed(w, arriving);
    if (!(i.mods & kClusterRelaxed))
        arriving.join(w.clocks.release(w.acting(mask)));
    else if (lenient)
        w.cta->relaxed_arriving.join(w.clocks.release());
    else
        w.clocks.tick();  // what follows is not before the barrier
    w.cluster_ahead |= ahead;
    w.cluster_arrived |= mask;
    cluster.barrier.arrived += static_cast<u32>(std::popcount(mask & ~ahead));
    cluster.now = std::max(cluster.now, w.time);
    settle(cluster);
    return Flow::next;
}

Flow cluster_wait(Warp& w, const Inst&, u32 mask) {
    Cluster& cluster = *w.cta->cluster;
    if (const u32 absent = mask & ~(w.cluster_arrived | w.cluster_passed))
        throw Fault("cluster-barrier-wait",
                    format("lanes 0x%08x wait at the cluster barrier without having arrived", absent));
    if (mask & ~w.cluster_passed) {
        w.fragment().wait = Wait::cluster;
        return Flow::stay;
    }
    w.cluster_passed &= ~mask | w.cluster_owed;
    w.cluster_owed &= ~mask;
    w.clocks.acquire(cluster.barrier.completed, w.acting(mask));
    w.clocks.acquire(w.cta->relaxed_completed);
    if (!cluster.barrier.agent) cluster.barrier.agent = cluster.new_agent({AgentKind::cluster_barrier, 0, 0, 0});
    w.clocks.generic.raise(*cluster.barrier.agent, cluster.barrier.phase);
    w.time = std::max(w.time, cluster.now);
    return Flow::next;
}

}  // namespace

void leave_cluster_barrier(Warp& w, u32 exited) {
    Cluster& cluster = *w.cta->cluster;
    w.clocks.add_shared_to(cluster.barrier.reached);
    cluster.barrier.arrived -= static_cast<u32>(std::popcount(w.cluster_arrived & exited));
    w.cluster_arrived &= ~exited;
    w.cluster_ahead &= ~exited;
    settle(cluster);
}

// clang-format off
#define PTXM_OPS_cluster(X)                                                                                     \
    X(fence_mbarrier_init, barrier, cluster, "fence.mbarrier_init.release=.cluster")                            \
    X(mapa, integer, cluster)                                                                                   \
    X(getctarank, integer, cluster)                                                                             \
    X(cluster_arrive, barrier, cluster, "barrier.cluster.arrive[.release=|.relaxed=cluster_relaxed][.aligned]") \
    X(cluster_wait, barrier, cluster, "barrier.cluster.wait[.acquire=][.aligned]")
// clang-format on

Handler bind_cluster(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::mapa: return mapa;
        case Op::getctarank: return getctarank;
        case Op::cluster_arrive: return cluster_arrive;
        case Op::cluster_wait: return cluster_wait;
        // Of the mbarriers that this warp has initialised, and of nothing else that it wrote.
        case Op::fence_mbarrier_init:
            return [](Warp& w, const Inst&, u32) {
                for (auto& [offset, bar] : w.cta->mbarriers)
                    if (bar.init.agent == w.clocks.self && !bar.init_fenced) bar.init_fenced = w.clocks.epoch();
                w.clocks.tick();
                return Flow::next;
            };
        default: return nullptr;
    }
}

}  // namespace ptxm
