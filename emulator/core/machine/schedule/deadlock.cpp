#include "machine/schedule/deadlock.hpp"

#include <algorithm>
#include <map>

#include "machine/addresses.hpp"
#include "machine/cluster/cluster.hpp"
#include "machine/machine.hpp"
#include "machine/names.hpp"

namespace ptxm {
namespace {

constexpr u32 kLines = 24;  // of a report

std::string describe_mbarrier(const Cluster& cluster, const Fragment& f) {
    const u32 rank = f.wait_mbar >> kSharedRankShift, offset = f.wait_mbar & kSharedOffsetMask;
    const Cta& cta = *cluster.ctas[rank];
    const auto& bars = cta.mbarriers;
    auto it = bars.find(offset);
    if (it == bars.end()) return format("an mbarrier at %s that no longer exists", shared_place(cta, offset).c_str());
    const Mbarrier& b = it->second;
    const std::string state =
        format("the mbarrier at %s, parity %u: in phase %u, %u of %u arrivals pending, tx-count %lld",
               shared_place(cta, offset).c_str(), f.wait_parity & 1, b.phase, b.pending, b.expected, (long long)b.tx);
    return b.tx < 0 ? format("%s (more bytes have come than expect_tx announced)", state.c_str()) : state;
}

// What a warp that waits for nothing has asked for in vain: its last strong read at or before this instruction.
std::string describe_poll(const Cluster& cluster, const Warp& w, i32 pc) {
    const WarpFences::Poll* last = nullptr;
    for (const WarpFences::Poll& p : w.fences.polls)
        if (p.pc >= 0 && (!last || (p.pc <= pc && (p.pc > last->pc || last->pc > pc)))) last = &p;
    if (!last) return "nothing: it polls";
    const Machine& m = *cluster.machine;
    const std::string value = format("which holds %llu", (unsigned long long)last->value);
    if (window_of(last->address) == Space::local) return format("a value in its own local memory, %s", value.c_str());
    if (last->address < kGlobalBase) {
        const Cta& cta = *cluster.ctas[last->address >> kSharedRankShift & 0xFF];
        const std::string at = shared_place(cta, static_cast<u32>(last->address & kSharedOffsetMask));
        return format("a value at %s to change, %s", at.c_str(), value.c_str());
    }
    const Allocation* const a = m.global.memory().holder(last->address);
    return format("a value of '%s' at byte %llu to change, %s", a ? a->name.c_str() : "?",
                  (unsigned long long)(a ? last->address - a->base : last->address), value.c_str());
}

std::string describe(const Cluster& cluster, const Cta& cta, const Warp& w, const Fragment& f) {
    return f.wait == Wait::none ? describe_poll(cluster, w, f.pc) : describe_wait(cluster, cta, f);
}

// How likely a wait is the reason for the others: 0 most. Who waits for warps of its own CTA or cluster mostly waits
// for one that waits elsewhere.
u32 rank_of(const Fragment& f, bool livelock) {
    switch (f.wait) {
        case Wait::tmem:
        case Wait::registers: return 0;
        case Wait::converge:
        case Wait::mbarrier: return 1;
        case Wait::none: return livelock ? 0 : 2;
        case Wait::barrier: return 3;
        default: return 4;
    }
}

std::string numbers(const std::vector<u32>& sorted) {
    std::string out;
    for (std::size_t k = 0; k < sorted.size();) {
        std::size_t end = k + 1;
        while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
        out += format(end - k > 1 ? "%s%u-%u" : "%s%u", out.empty() ? "" : ", ", sorted[k], sorted[end - 1]);
        k = end;
    }
    return out;
}

// Warps of one CTA that wait at one place for one thing.
struct Group {
    u32 rank, cta;
    i32 pc;
    std::string what;
    std::vector<u32> warps{};
    u32 lanes = 0;
    u64 fragments = 0;
};

}  // namespace

namespace {

// Of a barrier of the whole CTA, the warps that have not come.
std::string absent_from(const Cta& cta, const NamedBarrier& b) {
    std::vector<u32> absent;
    for (const Warp& w : cta.warps)
        if (w.live && !(w.index < b.lanes.size() && b.lanes[w.index])) absent.push_back(w.index);
    if (absent.empty()) return {};
    return format(", and not warp%s %s", absent.size() > 1 ? "s" : "", numbers(absent).c_str());
}

}  // namespace

namespace {

std::string taken_columns(const Cta& cta) {
    const Tmem& t = cta.tmem;
    const auto free = std::ranges::count(t.owner, 0);
    const auto held = std::ranges::find_if(t.owner, [](i32 mark) { return mark != 0; });
    if (held == t.owner.end()) return {};
    return format(" (%u of %u columns, of tcgen05.alloc at PTX line %u)",
                  (static_cast<u32>(t.owner.size()) - static_cast<u32>(free)) * Tmem::kGranule, Tmem::kColumns,
                  cta.cluster->machine->program->insts[static_cast<u32>(*held - 1)].line);
}

}  // namespace

std::string describe_wait(const Cluster& cluster, const Cta& cta, const Fragment& f) {
    switch (f.wait) {
        case Wait::mbarrier: return describe_mbarrier(cluster, f);
        case Wait::barrier: {
            const NamedBarrier& b = cta.barriers[f.wait_barrier];
            return b.expected ? format("barrier %u: %u of %u threads arrived", f.wait_barrier, b.arrived, b.expected)
                              : format("barrier %u: %u threads arrived%s", f.wait_barrier, b.arrived,
                                       absent_from(cta, b).c_str());
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
                                : "tensor memory that is still allocated" + taken_columns(cta);
        }
        case Wait::join: return "the other lanes of the warp, to reconverge";
        case Wait::async_group: return "asynchronous groups of its own to complete";
        case Wait::warpgroup: return "the other warps of its warpgroup, to execute the same wgmma";
        default: return "nothing: it polls";
    }
}

// Those that most likely keep the others waiting come first; warps of a CTA that wait alike are one line.
void report_deadlock(std::span<const std::unique_ptr<Cluster>> resident, const char* rule) {
    Finding f;
    f.rule = rule;
    u32 waiting = 0;
    bool nonconvergent = false;
    const bool livelock = std::string_view(rule) == "livelock";
    std::vector<Group> groups;
    const auto note = [&](const Cluster& cluster, const Cta& cta, const Warp& w, const Fragment& fragment) {
        nonconvergent = nonconvergent || fragment.wait == Wait::converge;
        waiting += 1;
        std::string what = describe(cluster, cta, w, fragment);
        const auto alike = [&](const Group& g) { return g.cta == cta.linear && g.pc == fragment.pc && g.what == what; };
        auto at = std::ranges::find_if(groups, alike);
        if (at == groups.end())
            at = groups.insert(groups.end(),
                               Group{rank_of(fragment, livelock), cta.linear, fragment.pc, std::move(what)});
        if (at->warps.empty() || at->warps.back() != w.index) at->warps.push_back(w.index);
        at->lanes = at->fragments++ ? at->lanes | fragment.mask : fragment.mask;
    };
    for (const auto& cluster : resident)
        for (const auto& cta : cluster->ctas)
            for (const Warp& w : cta->warps)
                if (w.live)
                    for (const Fragment& fragment : w.fragments) note(*cluster, *cta, w, fragment);
    std::ranges::stable_sort(groups, {}, &Group::rank);
    f.pc = groups.front().pc;
    f.cta = groups.front().cta;
    f.warp = static_cast<i32>(groups.front().warps.front());
    // Of CTAs that do alike, the first.
    std::map<std::pair<i32, u32>, u32> told;
    u32 left_out = 0;
    for (const Group& g : groups) {
        if (told[{g.pc, g.rank}]++ >= 4 || f.details.size() >= kLines) {
            left_out += static_cast<u32>(g.fragments);
            continue;
        }
        const bool one = g.warps.size() == 1;
        f.details.emplace_back(
            g.pc, format("CTA %u warp%s %s%s %s for %s", g.cta, one ? "" : "s", numbers(g.warps).c_str(),
                         g.lanes == kAllLanes ? "" : format(" lanes 0x%08x", g.lanes).c_str(), one ? "waits" : "wait",
                         g.what.c_str()));
    }
    if (left_out) f.details.emplace_back(-1, format("and %u more wait", left_out));
    f.message = format("no warp can go on and nothing asynchronous is pending; %u waiting", waiting);
    if (nonconvergent) f.message += "; an .aligned or .sync instruction is not reached by all its lanes";
    if (livelock) f.message = format("the warps only poll; %u polling or waiting", waiting);
    resident.front()->findings.add(std::move(f));
}

}  // namespace ptxm
