#include "order/conflicts/cta_exit.hpp"

#include "machine/machine.hpp"
#include "machine/names.hpp"

namespace ptxm {
namespace {

VectorClock known_at_exit(const Cta& cta) {
    VectorClock known = cta.exit_ordered;
    for (const Warp& w : cta.warps) w.clocks.add_shared_to(known);
    return known;
}

void report_unordered_exit(Cta& cta, const Use& access) {
    Cluster& cluster = *cta.cluster;
    Machine& m = *cluster.machine;
    const AgentKind kind = cluster.agents[access.agent].kind;
    const std::string who = describe_agent(cluster, access.agent);
    if (kind == AgentKind::bulk_load)
        m.report_strict(&cta.warps[0], "exit-with-work-in-flight",
                        format("the CTA exits before this copy into its shared memory (%s) is known to be complete: no "
                               "thread of the CTA has waited for it",
                               who.c_str()),
                        static_cast<i32>(access.pc));
    else if (kind == AgentKind::phase)
        m.report_strict(&cta.warps[0], "exit-with-work-in-flight",
                        format("the CTA exits before this arrival on %s is known to be there: no thread of the CTA has "
                               "waited for it, or for a later one",
                               who.c_str()),
                        static_cast<i32>(access.pc));
    else
        m.report_strict(&cta.warps[0], "cluster-exit-race",
                        format("%s exits while %s may still access its shared memory: nothing orders the access before "
                               "the exit",
                               name_of(cta).c_str(), who.c_str()),
                        static_cast<i32>(access.pc));
}

// A thread's bulk stores read the CTA's shared memory until it has waited for them.
void check_stores(Cta& cta) {
    for (Warp& w : cta.warps) {
        for (const auto& [lane, bulk] : w.bulk) {
            if (w.clocks.generic.get(bulk.reads) < bulk.used)
                cta.cluster->machine->report_strict(
                    &w, "exit-with-work-in-flight",
                    format("lane %u exits with bulk stores that may still read shared memory: no "
                           "cp.async.bulk.wait_group covers them",
                           lane),
                    bulk.last_pc);
        }
    }
}

// Of a warpgroup, some warps have executed a setmaxnreg that others have left out.
void check_register_calls(Cta& cta) {
    constexpr u32 kWarpgroup = 4;
    for (const Warp& w : cta.warps) {
        if (w.index / kWarpgroup >= cta.register_calls.size()) break;
        const std::vector<i32>& calls = cta.register_calls[w.index / kWarpgroup];
        if (w.register_calls < calls.size())
            cta.cluster->machine->report_strict(
                &w, "setmaxnreg-divergent",
                format("%s exits, and warp %u has not executed this setmaxnreg, which others of its warpgroup have",
                       name_of(cta).c_str(), w.index),
                calls[w.register_calls]);
    }
}

}  // namespace

void note_outside_access(Cta& target, AgentId agent, u32 clock, u32 pc) {
    if (target.live_warps == 0) {
        report_unordered_exit(target, {agent, clock, pc});
        return;
    }
    note_use(target.outside, {agent, clock, pc});
}

void check_cta_exit(Cta& cta) {
    if (!cta.cluster->machine->checks) return;
    check_stores(cta);
    check_register_calls(cta);
    if (cta.outside.empty()) return;
    const VectorClock known = known_at_exit(cta);
    for (const Use& o : cta.outside)
        if (known.get(o.agent) < o.clock) report_unordered_exit(cta, o);
}

}  // namespace ptxm
