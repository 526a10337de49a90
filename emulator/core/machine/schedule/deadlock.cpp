#include "machine/schedule/deadlock.hpp"

#include "machine/cluster/cluster.hpp"
#include "machine/names.hpp"

namespace ptxm {
namespace {

constexpr u32 kLines = 64;  // of a report

std::string describe_mbarrier(const Cluster& cluster, const Fragment& f) {
    const u32 rank = f.wait_mbar >> kSharedRankShift, offset = f.wait_mbar & kSharedOffsetMask;
    const Cta& cta = *cluster.ctas[rank];
    const auto& bars = cta.mbarriers;
    auto it = bars.find(offset);
    if (it == bars.end()) return format("an mbarrier at %s that no longer exists", shared_place(cta, offset).c_str());
    const Mbarrier& b = it->second;
    return format("the mbarrier at %s, parity %u: in phase %u, %u of %u arrivals pending, tx-count %lld",
                  shared_place(cta, offset).c_str(), f.wait_parity & 1, b.phase, b.pending, b.expected,
                  (long long)b.tx);
}

}  // namespace

std::string describe_wait(const Cluster& cluster, const Cta& cta, const Fragment& f) {
    switch (f.wait) {
        case Wait::mbarrier: return describe_mbarrier(cluster, f);
        case Wait::barrier: {
            const NamedBarrier& b = cta.barriers[f.wait_barrier];
            return b.expected ? format("barrier %u: %u of %u threads arrived", f.wait_barrier, b.arrived, b.expected)
                              : format("barrier %u: %u threads arrived", f.wait_barrier, b.arrived);
        }
        case Wait::cluster:
            return format("the cluster barrier: %u threads arrived in phase %u", cluster.barrier.arrived,
                          cluster.barrier.phase);
        case Wait::bulk: return "its bulk groups";
        case Wait::registers:
            return format("%u registers a thread: the CTA's pool has %u", f.wait_parity, cta.free_registers);
        case Wait::converge: return "the other lanes of the warp, which an .aligned or .sync instruction needs";
        case Wait::tmem: {
            const PairCall& call = cta.tmem.pair_call;
            if (f.wait_for_clusters) return "tensor memory that other CTAs hold: the multiprocessors have no more";
            return call.waiting ? format("the peer CTA's tcgen05.%s", call.dealloc ? "dealloc" : "alloc")
                                : std::string("tensor memory that is still allocated");
        }
        case Wait::join: return "the other lanes of the warp, to reconverge";
        case Wait::async_group: return "asynchronous groups of its own to complete";
        case Wait::warpgroup: return "the other warps of its warpgroup, to execute the same wgmma";
        default: return "nothing: it polls";
    }
}

void report_deadlock(std::span<const std::unique_ptr<Cluster>> resident, const char* rule) {
    Finding f;
    f.rule = rule;
    u32 waiting = 0;
    bool nonconvergent = false;
    const auto note = [&](const Cluster& cluster, const Cta& cta, const Warp& w, const Fragment& fragment) {
        nonconvergent = nonconvergent || fragment.wait == Wait::converge;
        if (waiting++ == 0) {
            f.pc = fragment.pc;
            f.cta = cta.linear;
            f.warp = static_cast<i32>(w.index);
        }
        if (waiting <= kLines)
            f.details.emplace_back(fragment.pc, format("CTA %u warp %u lanes 0x%08x waits for %s", cta.linear, w.index,
                                                       fragment.mask, describe_wait(cluster, cta, fragment).c_str()));
    };
    for (const auto& cluster : resident)
        for (const auto& cta : cluster->ctas)
            for (const Warp& w : cta->warps)
                if (w.live)
                    for (const Fragment& fragment : w.fragments) note(*cluster, *cta, w, fragment);
    f.message = format("no warp can go on and nothing asynchronous is pending; %u waiting", waiting);
    if (nonconvergent) f.message += "; an .aligned or .sync instruction is not reached by all its lanes";
    if (std::string(rule) == "livelock") f.message = format("the warps only poll; %u polling or waiting", waiting);
    resident.front()->findings.add(std::move(f));
}

}  // namespace ptxm
