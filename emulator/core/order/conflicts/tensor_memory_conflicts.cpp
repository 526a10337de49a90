// Conflict checks of tensor memory. docs/understand/order.md states the rules.
#include "order/conflicts/tensor_memory_conflicts.hpp"

#include <algorithm>
#include <string_view>

#include "machine/machine.hpp"
#include "order/conflicts/conflict_messages.hpp"

namespace ptxm {
namespace {

// An MMA that its own thread has not committed, and the commit of a thread that had issued none.
Note commit_of_another(const Cluster& cluster, const AgentInfo& issuer, const Access& mma) {
    const Cta& cta = *cluster.ctas[issuer.cta];
    const Warp& by = cta.warps[issuer.warp];
    if (by.commits.covered >= mma.clock) return {};
    const auto& issued = by.clocks.mma_issued_by;
    const auto lane = std::ranges::find_if(issued, [&](u32 last) { return last >= mma.clock; }) - issued.begin();
    const auto other = std::ranges::find_if(cta.warps, [&](const Warp& w) {
        return w.commits.idle_pc >= 0 && (w.index != by.index || w.commits.idle_lane != lane);
    });
    if (other == cta.warps.end()) return {};
    return {other->commits.idle_pc,
            format("thread %u issues the MMA and thread %u commits, which covers the MMAs of its own thread alone: the "
                   "commit",
                   issuer.warp * kLanes + static_cast<u32>(lane), other->index * kLanes + other->commits.idle_lane)};
}

Verdict explain_tmem(Warp& w, Cta& target, const Conflict& c, const Accessor& who, const char* what, const Place& where,
                     const Wording& say) {
    const std::string place = say.place(where);
    const Cluster& cluster = *w.cta->cluster;
    if (c.uninitialised)
        return {"uninitialised-tmem",
                say("%s reads %s, which nothing has written since it was allocated", what, place.c_str())};
    const Access& e = *c.earlier;
    const AgentInfo& agent = info(cluster, e.agent);
    const std::string them = say.agent(cluster, e.agent);
    const char* mine = who.write ? "writes" : "reads";
    const WarpClocks& clocks = w.clocks;
    if (agent.kind == AgentKind::tmem_ld || agent.kind == AgentKind::tmem_st) {
        const WarpClocks& owner = target.cluster->ctas[agent.cta]->warps[agent.warp].clocks;
        const bool waited = owner.tc.get(e.agent) >= e.clock,
                   after_release = clocks.generic.get(e.agent) >= e.clock && clocks.acquired.get(e.agent) < e.clock &&
                                   clocks.acquired_unfenced.get(e.agent) < e.clock;
        if (!waited || after_release) {
            const bool load = agent.kind == AgentKind::tmem_ld;
            return {
                load ? "tmem-missing-wait-ld" : "tmem-missing-wait-st",
                say("%s %s %s while %s may not be complete: no tcgen05.wait::%s after it%s", what, mine, place.c_str(),
                    them.c_str(), load ? "ld" : "st", waited ? ", before the barrier that would order them" : "")};
        }
    }
    if (clocks.acquired.get(e.agent) >= e.clock)
        return {
            "tmem-missing-fence-after",
            say("%s %s %s after a wait that orders it after %s, with no tcgen05.fence::after_thread_sync in between",
                what, mine, place.c_str(), them.c_str())};
    if (clocks.acquired_unfenced.get(e.agent) >= e.clock)
        return {"tmem-missing-fence-before",
                say("%s %s %s; %s has no tcgen05.fence::before_thread_sync before the barrier that would order them",
                    what, mine, place.c_str(), them.c_str())};
    if (agent.kind == AgentKind::tensor) {
        Note commit = say.wanted() ? commit_of_another(*target.cluster, agent, e) : Note();
        return {
            c.earlier_was_write ? "tmem-access-under-mma" : "tmem-overwrite-under-mma",
            say("%s %s %s while %s may still %s it: %s", what, mine, place.c_str(), them.c_str(),
                c.earlier_was_write ? "write" : "read",
                commit.text.empty() ? "no commit and wait in between" : "no commit of the thread that has issued it"),
            std::move(commit)};
    }
    return {"tmem-race", say("%s %s %s, which %s %s with no synchronisation in between", what, mine, place.c_str(),
                             them.c_str(), c.earlier_was_write ? "wrote" : "read")};
}

// Released kernels load what nothing has written and drop it: a rescaled accumulator before its first MMA (FlashInfer's
// block-sparse attention), all lanes of a warp of which an M of 64 has written half.
bool breaks_only_strict(std::string_view r, bool load) {
    if (load && r == "uninitialised-tmem") return true;
    return r == "tmem-missing-fence-after" || r == "tmem-missing-fence-before" || r == "tmem-missing-wait-st";
}

void report_tmem(Warp& w, Cta& target, const Conflict& c, const Accessor& who, const char* what, const Place& where) {
    Machine& m = machine_of(w);
    const i32 pc = static_cast<i32>(who.pc), other = c.earlier ? static_cast<i32>(c.earlier->pc) : -1;
    const char* rule = explain_tmem(w, target, c, who, what, where, Wording(false)).rule;
    const bool load = info(*target.cluster, who.agent).kind == AgentKind::tmem_ld;
    if (m.profile == Profile::lenient && breaks_only_strict(rule, load)) return;
    if (m.findings->seen(rule, pc, other)) return;
    m.report(w, explain_tmem(w, target, c, who, what, where, Wording(true)), pc, other);
}

bool tmem_ordered(const Warp& w, const Access& e, const Accessor& who) {
    return e.agent == who.agent || w.clocks.tc.get(e.agent) >= e.clock;
}

}  // namespace

bool update_tmem_quietly(Cta& target, Warp& w, u32 lane, u32 lanes, u32 column, u32 columns, const Accessor& writer) {
    if (!machine_of(w).checks) return true;
    if (target.tmem.gave_back && !target.tmem.allocated(column, columns)) return false;
    TmemShadow& shadow = target.tmem.shadow;
    Pasts& pasts = shadow.pasts();
    const u32 before = shadow.common(lane, lanes, column, columns);
    if (before == Pasts::kNone || pasts[before].write.clock == 0) return false;
    bool conflict = false;
    Touch touch(
        pasts, writer, true, [&](const Access& e, bool) { return tmem_ordered(w, e, writer); },
        [&](const Conflict&) { conflict = true; });
    const u32 after = touch(before);
    if (!conflict) shadow.set(lane, lanes, column, columns, after);
    return !conflict;
}

void touch_tmem(Cta& target, Warp& w, u32 lane, u32 lanes, u32 column, u32 columns, const Accessor& who,
                const char* what, bool synchronous) {
    if (!machine_of(w).checks) return;
    if (target.tmem.gave_back && !target.tmem.allocated(column, columns)) return;  // require_allocated has told
    const AgentKind mine = info(*target.cluster, who.agent).kind;
    u32 from = lane / TmemShadow::kLanes * TmemShadow::kLanes;
    Touch touch(
        target.tmem.shadow.pasts(), who, true,
        [&](const Access& e, bool was_write) {
            // A warp's own store after its own load is ordered by the registers between them.
            return tmem_ordered(w, e, who) || (synchronous && w.clocks.acquired.get(e.agent) >= e.clock) ||
                   (mine == AgentKind::tmem_st && !was_write && e.agent == w.clocks.ld);
        },
        [&](const Conflict& conflict) {
            report_tmem(w, target, conflict, who, what, [&] {
                return format("tensor memory lanes %u-%u, columns %u-%u", from, from + TmemShadow::kLanes - 1, column,
                              column + columns - 1);
            });
        });
    for (; from < lane + lanes; from += TmemShadow::kLanes) target.tmem.shadow.touch(from, column, columns, touch);
}

}  // namespace ptxm
