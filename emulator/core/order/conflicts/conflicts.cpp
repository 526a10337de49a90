// Conflict checks: is this access ordered after the earlier ones that it overlaps?
//
// A GPU may carry out two accesses in either order, unless something orders them. A run of this machine sees one order
// only. So a check does not ask what came first. It asks of every access whether it had to come after the earlier ones
// of the same bytes. If it had not, another run may read other values: that is a hazard, though this run's are right.
//
// Two things are kept for the answer.
//
// The access history of a piece of memory says who wrote it last, and who has read it since
// (order/history/access_history.hpp). An entry names an agent and the agent's clock at the access. An agent is anything
// whose own accesses come in order: a warp, the tensor-core operations of one issuing warp, the bulk copies that
// complete on one mbarrier.
//
// A warp's vector clocks say up to which clock it knows each agent (order/clocks.hpp). "Warp 1 knows L up to 1" means
// that all L did up to its clock 1 is ordered before what warp 1 does next. Knowledge moves with synchronisation alone:
// an arrival leaves the warp's clocks at the barrier as a message, and a wait that sees the phase complete takes them.
//
// A check is then one comparison: the access is ordered after an entry (agent, clock) if the warp's clock of that agent
// is at least `clock`. A write is held against the last write and the reads since. A read is held against the last
// write.
//
// An example: one slot of a ring, filled by TMA, multiplied, filled again. Warp 0 issues the copies, which belong to
// agent L, and warp 1 issues the MMA, which belongs to agent T. `full` and `empty` are mbarriers.
//
//     what is executed                        what is known after it          the slot's history
//     warp 0: cp.async.bulk.tensor, on full                                   written by L at 1
//     its bytes have come: full completes     full carries L up to 1
//     warp 1: try_wait(full) is true          warp 1 knows L up to 1
//     warp 1: tcgen05.mma reads the slot      (checked: L at 1, known)        written by L at 1, read by T at 1
//     warp 1: tcgen05.commit, on empty        empty carries L and T up to 1
//     warp 0: try_wait(empty) is true         warp 0 knows L and T up to 1
//     warp 0: cp.async.bulk.tensor again      (checked: both, both known)     written by L at 2
//
// Take away warp 1's wait, and the MMA reads what L wrote at 1 while warp 1 knows nothing of L: "bulk-copy-in-flight".
// Take away warp 0's wait, and L overwrites what T read at 1 while warp 0 knows nothing of T: "overwrite-under-mma". In
// either case the machine may well have done the steps in the good order, and every number may be right.
// tests/emulator/mma/test_matrix_kernels.py takes each of them away from a kernel.
//
// What makes the code below longer than that comparison:
//
// - Proxies. What a warp wrote with a plain store is known to the async proxy only after a fence.proxy.async. So there
//   is a second clock, and `linear_ordered` asks the one that belongs to the proxy at work.
// - Scopes and strength. Two strong accesses never race, if each one's scope includes the other's thread.
// - Clusters. Agents are numbered within a cluster, and of other clusters a warp knows what global memory has told it.
// - Lanes. Where one lane fences, arrives or waits for its warp, it orders its own accesses alone (strict profile).
// - Words. `explain_linear` finds the rule to name: the first that says which synchronisation is missing.
//
// docs/understand/order.md states what orders what, and what the lenient profile lets pass.
#include "order/conflicts/conflicts.hpp"

#include "machine/grid/grid_tree.hpp"
#include "machine/machine.hpp"
#include "machine/names.hpp"
#include "order/conflicts/conflict_messages.hpp"
#include "order/conflicts/cta_exit.hpp"
#include "order/history/linear_history.hpp"

namespace ptxm {
namespace {

AgentKind kind_of(const Warp& w, const Access& earlier, const Accessor& who) {
    return earlier.cluster == who.cluster ? info(*w.cta->cluster, earlier.agent).kind
                                          : static_cast<AgentKind>(earlier.kind);
}

// What this warp knows of an agent of another cluster.
u32 foreign_clock(const Warp& w, const Access& earlier, bool async) {
    const ForeignClocks::View* view = w.clocks.foreign.find(earlier.cluster);
    if (!view) return 0;
    return (async ? view->async : view->generic).get(earlier.agent);
}

// Accesses to global memory have the number of a cluster.
bool is_shared(const Accessor& who) { return who.cluster == 0; }

u32 known_clock(const Warp& w, const Access& earlier, const Accessor& who) {
    if (earlier.cluster != who.cluster) return foreign_clock(w, earlier, false);
    return is_shared(who) ? w.clocks.known_shared(earlier.agent) : w.clocks.generic.get(earlier.agent);
}

std::string describe_earlier(const Warp& w, const Access& earlier, const Accessor& who) {
    if (earlier.cluster == who.cluster) return describe_agent(*w.cta->cluster, earlier.agent);
    return is_generic(static_cast<AgentKind>(earlier.kind)) ? "a warp of another cluster or CTA"
                                                            : "a bulk copy of another cluster or CTA";
}

// How a linear memory is accessed. The async proxy needs a fence.proxy.async that covers the memory's space.
enum class Proxy : u8 { generic, async_shared, async_global };

// A relaxed cluster barrier orders no accesses. Triton's kernels rely on it all the same for what a CTA has done with
// its shared memory before a peer's bulk copies overwrite it.
bool overwritten_after_barrier(const Warp& w, const Access& earlier, const Accessor& who, Proxy proxy, AgentKind kind) {
    return who.write && proxy == Proxy::async_shared && is_generic(kind) &&
           w.cta->cluster->machine->profile == Profile::lenient &&
           w.cta->exit_ordered.get(earlier.agent) >= earlier.clock;
}

// Whether an access at .cta scope includes the other's thread.
bool same_cta(const Warp& w, const Access& earlier, const Accessor& who) {
    return earlier.cluster == who.cluster &&
           info(*w.cta->cluster, earlier.agent).cta == info(*w.cta->cluster, who.agent).cta;
}

// Whether it matters which lanes fenced, released and acquired, and whose accesses the earlier one is: 0 for those of
// its whole instruction.
struct ByLane {
    bool matters = true;
    u32 earlier = 0;
};

const Warp& warp_of(const Warp& w, const AgentInfo& agent) {
    return w.cta->cluster->ctas[agent.cta]->warps[agent.warp];
}

// What `view` knows of an earlier access, it may know of some lanes of that warp, or in some of this one, only.
bool lanes_ordered(Warp& w, const VectorClock& view, const Access& earlier, const Accessor& who, u32 lanes) {
    if (view.has_parts()) {
        const AgentInfo& agent = info(*w.cta->cluster, earlier.agent);
        if (!lanes && agent.kind == AgentKind::warp) lanes = warp_of(w, agent).clocks.lanes_at(earlier.clock);
        if (!view.knows(earlier.agent, earlier.clock, lanes)) return false;
    }
    return w.clocks.lanes_know(earlier.agent, earlier.clock, who.lanes);
}

// The same of a warp of another cluster. Which of its lanes came to these bytes nobody knows any longer: where some of
// those that the instruction had are left out, it is taken to be one of them.
bool foreign_lanes_ordered(const Warp& w, const Access& earlier, const Accessor& who, bool async) {
    const ForeignClocks::View* const view = w.clocks.foreign.find(earlier.cluster);
    if (static_cast<AgentKind>(earlier.kind) == AgentKind::warp &&
        !(async ? view->async : view->generic).knows(earlier.agent, earlier.clock, kAllLanes))
        return false;
    return w.clocks.lanes_know(earlier.cluster, earlier.agent, earlier.clock, who.lanes);
}

// The clock that orders an earlier linear-memory access before what warp `w` does now.
bool linear_ordered(Warp& w, const Access& earlier, bool earlier_was_write, const Accessor& who, Proxy proxy,
                    const ByLane& lanes = {}) {
    if (earlier.strong && who.strong && (!(earlier.narrow || who.narrow) || same_cta(w, earlier, who))) return true;
    const AgentKind kind = kind_of(w, earlier, who);
    // Released kernels let bulk copies overwrite what was written through the generic proxy with no proxy fence, and
    // the tensor core read what cp.async wrote.
    const bool unfenced = (who.write || kind == AgentKind::cp_async) && machine_of(w).profile == Profile::lenient;
    const bool needs_proxy_fence = proxy != Proxy::generic && earlier_was_write && is_generic(kind) && !unfenced;
    if (earlier.cluster != who.cluster) {
        if (const u32 launch = machine_of(w).launch_of(earlier.cluster); launch && w.clocks.knows_launch(launch))
            return true;
        if (foreign_clock(w, earlier, needs_proxy_fence) < earlier.clock) return false;
        return !lanes.matters || !w.clocks.by_lane || foreign_lanes_ordered(w, earlier, who, needs_proxy_fence);
    }
    const bool unordered_within =
        kind == AgentKind::bulk_load || kind == AgentKind::bulk_store || kind == AgentKind::cp_async;
    if (earlier.agent == who.agent && !unordered_within && !needs_proxy_fence) {
        w.lanes.met |= earlier.clock > w.clocks.lanes_ordered;
        return true;
    }
    const VectorClock& fenced = proxy == Proxy::async_global ? w.clocks.async_global : w.clocks.async;
    const VectorClock& view = needs_proxy_fence ? fenced : w.clocks.generic;
    if (view.get(earlier.agent) >= earlier.clock)
        return !lanes.matters || !w.clocks.by_lane || lanes_ordered(w, view, earlier, who, lanes.earlier);
    if (is_shared(who) && !needs_proxy_fence && w.clocks.shared_only.get(earlier.agent) >= earlier.clock) return true;
    return overwritten_after_barrier(w, earlier, who, proxy, kind);
}

// An MMA may be issued early, up to the last tcgen05.fence::after_thread_sync: what its issuer learned since, from
// others, does not order it.
bool fenced_for_mma(Warp& w, const Access& earlier, const Accessor& who) {
    if (earlier.agent == who.agent || earlier.agent == w.clocks.self) return true;
    return w.clocks.fenced.get(earlier.agent) >= earlier.clock;
}

// A wait behind the operation leaves it pending, as one of the groups that were committed last.
Note leaves_pending(const GroupWait& wait, const Access& e, const char* what) {
    if (wait.pc < 0 || !wait.pending || e.clock > wait.last) return {};
    const std::string last = wait.pending > 1 ? format("last %u groups", wait.pending) : "last group";
    return {wait.pc, format("there is a wait for all but the %s, which %s is still in: the wait", last.c_str(), what)};
}

// The wait for a cp.async that there is, and what it lacks.
Note copy_wait_there(const Warp& copier, const Access& e) {
    const GroupWait& wait = copier.copies_waited;
    if (wait.pc >= 0 && copier.clocks.generic.get(e.agent) >= e.clock)
        return {wait.pc, "its own warp has waited for it, and no barrier that orders the two is behind the wait"};
    return leaves_pending(wait, e, "the copy");
}

// These say the same in brief, for the headline.
const char* bulk_wait_lacks(const Note& there, bool was_write) {
    if (there.text.empty())
        return was_write ? "no cp.async.bulk.wait_group by its thread in between"
                         : "no cp.async.bulk.wait_group{.read} by its thread in between";
    if (there.text.starts_with("its own thread")) return "no barrier after the wait for it in between";
    return there.text.starts_with("there is a wait_group.read")
               ? "its thread has waited for its reads alone, by wait_group.read"
               : "the wait in between leaves its group pending";
}

const char* copy_wait_lacks(const Note& there) {
    if (there.text.empty()) return "no cp.async.wait_group, or no barrier after it, in between";
    return there.text.starts_with("there is a wait") ? "the wait in between leaves its group pending"
                                                     : "no barrier after the wait for it in between";
}

Note bulk_wait_there(const Warp& storer, const AgentInfo& agent, const Access& e, bool was_write) {
    const auto lane = storer.bulk.find(agent.detail);
    if (lane == storer.bulk.end()) return {};
    const BulkLane& bulk = lane->second;
    const GroupWait& waited = was_write || bulk.waited_reads.pc < 0 ? bulk.waited : bulk.waited_reads;
    if (waited.pc >= 0 && storer.clocks.generic.get(was_write ? bulk.writes : bulk.reads) >= e.clock)
        return {waited.pc, "its own thread has waited for it, and no barrier that orders the two is behind the wait"};
    if (was_write && bulk.waited_reads.pc >= 0 && storer.clocks.generic.get(bulk.reads) >= e.clock)
        return {
            bulk.waited_reads.pc,
            "there is a wait_group.read, which covers the reads of the store's source and not its writes: the wait"};
    return leaves_pending(waited, e, "the store");
}

Verdict explain_linear(Warp& w, const Conflict& c, const Accessor& who, Proxy proxy, const Place& where,
                       const Wording& say) {
    const std::string place = say.place(where);
    const std::string me = say.agent(*w.cta->cluster, who.agent);
    if (c.uninitialised)
        return {"uninitialised-shared", say("%s reads %s, which nothing has written", me.c_str(), place.c_str())};
    const Access& e = *c.earlier;
    const AgentKind kind = kind_of(w, e, who);
    const std::string them = say.wanted() ? describe_earlier(w, e, who) : std::string();
    const char* mine = who.write ? "writes" : "reads";
    const auto note = [&](bool bulk) {
        if (!say.wanted() || e.cluster != who.cluster) return Note();
        const AgentInfo& agent = info(*w.cta->cluster, e.agent);
        return bulk ? bulk_wait_there(warp_of(w, agent), agent, e, c.earlier_was_write)
                    : copy_wait_there(warp_of(w, agent), e);
    };
    if (c.stale)
        return {"non-coherent-load", say("%s reads %s, which %s wrote in this launch, through the non-coherent path",
                                         me.c_str(), place.c_str(), them.c_str())};
    if (linear_ordered(w, e, c.earlier_was_write, who, proxy))
        return {
            "mma-missing-fence-after",
            say("%s %s %s after a wait that orders it after %s, with no tcgen05.fence::after_thread_sync in between",
                me.c_str(), mine, place.c_str(), them.c_str())};
    if (linear_ordered(w, e, c.earlier_was_write, who, proxy, {false}))
        return {"lane-alone",
                say("%s %s %s, which %s %s: what orders the two is a fence, an arrival or a wait by other lanes of "
                    "their warp, with no bar.warp.sync between those lanes",
                    me.c_str(), mine, place.c_str(), them.c_str(), c.earlier_was_write ? "wrote" : "read")};
    if (e.cluster == who.cluster && w.clocks.beyond && w.clocks.beyond->get(e.agent) >= e.clock)
        return {"scope-too-narrow",
                say("%s %s %s, which %s %s: the arrival at another CTA's mbarrier, or the wait for it, that orders the "
                    "two has .cta scope, which leaves the other CTA out",
                    me.c_str(), mine, place.c_str(), them.c_str(), c.earlier_was_write ? "wrote" : "read")};
    if (proxy != Proxy::generic && c.earlier_was_write && is_generic(kind) && known_clock(w, e, who) >= e.clock)
        return {"missing-proxy-fence",
                say("%s %s %s, written by %s through the generic proxy, with no fence.proxy.async of that memory in "
                    "between",
                    me.c_str(), mine, place.c_str(), them.c_str())};
    if (is_bulk_store(kind)) {
        Note wait = note(true);
        return {"bulk-store-in-flight",
                say("%s %s %s while %s may still %s it: %s", me.c_str(), mine, place.c_str(), them.c_str(),
                    c.earlier_was_write ? "write" : "read", bulk_wait_lacks(wait, c.earlier_was_write)),
                std::move(wait)};
    }
    if (kind == AgentKind::bulk_load)
        return {"bulk-copy-in-flight",
                say("%s %s %s while %s may still %s it: nothing waits for its mbarrier phase in between", me.c_str(),
                    mine, place.c_str(), them.c_str(), c.earlier_was_write ? "write" : "read")};
    if (kind == AgentKind::cp_async && w.clocks.generic.get(e.agent) < e.clock) {
        Note wait = note(false);
        return {"cp-async-in-flight",
                say("%s %s %s while %s may still %s it: %s", me.c_str(), mine, place.c_str(), them.c_str(),
                    c.earlier_was_write ? "write" : "read", copy_wait_lacks(wait)),
                std::move(wait)};
    }
    if (kind == AgentKind::warpgroup)
        return {"overwrite-under-mma",
                say("%s %s %s while %s may still read it: no wgmma.wait_group by that warpgroup, or no barrier between "
                    "its wait_group and this access",
                    me.c_str(), mine, place.c_str(), them.c_str())};
    if (kind == AgentKind::tensor)
        return {"overwrite-under-mma", say("%s %s %s while %s may still read it: no commit and wait in between",
                                           me.c_str(), mine, place.c_str(), them.c_str())};
    if (e.strong && who.strong)
        return {"race",
                say("%s %s %s, which %s %s: both are strong, but the .cta scope of one leaves the other's CTA out",
                    me.c_str(), mine, place.c_str(), them.c_str(), c.earlier_was_write ? "wrote" : "read")};
    return {"race", say("%s %s %s, which %s %s with no synchronisation in between", me.c_str(), mine, place.c_str(),
                        them.c_str(), c.earlier_was_write ? "wrote" : "read")};
}

// FlashAttention-2 loads matrices whose last rows lie behind the end of the sequence, CUTLASS's GEMMs for Ampere stages
// that nothing has filled: what comes of them is dropped.
// What a plain load brings is followed to where it matters (machine/schedule/schedule.cpp).
bool may_be_dropped(Warp& w, const Conflict& c, const Accessor& who) {
    const Machine& m = machine_of(w);
    if (!c.uninitialised || m.profile != Profile::lenient) return false;
    const Op op = static_cast<Op>(m.program->insts[who.pc].op);
    if (op == Op::ld) doubt(w, {});
    return op == Op::ldmatrix || op == Op::ld;
}

// The lanes whose earlier access reached into these bytes of shared memory; 0 where that is forgotten.
u32 lanes_within(const Warp& w, const Access& earlier, u64 start, u64 end) {
    const AgentInfo& agent = info(*w.cta->cluster, earlier.agent);
    if (agent.kind != AgentKind::warp) return 0;
    u32 lanes = 0;
    for (const LaneAccess& a : warp_of(w, agent).lanes.accesses) {
        if (a.clock != earlier.clock) continue;
        for (u32 l = 0; l < kLanes; ++l)
            lanes |= static_cast<u32>(a.at[l] < end && start < u64{a.at[l]} + a.size) << l & a.mask;
    }
    return lanes;
}

// An instruction's accesses were taken for those of all its lanes. Where only lanes are at fault, those that count are
// the ones that came to the bytes at hand, which are in [start, end).
bool lanes_acquit(Warp& w, const Conflict& c, const Accessor& who, Proxy proxy, u64 start, u64 end) {
    const u32 lanes = lanes_within(w, *c.earlier, start, end);
    return linear_ordered(w, *c.earlier, c.earlier_was_write, who, proxy, {lanes != 0, lanes});
}

bool is_of(const Past& past, const Conflict& c) {
    const auto same = [&](const Access& a) {
        return a.clock == c.earlier->clock && a.agent == c.earlier->agent && a.cluster == c.earlier->cluster;
    };
    if (c.earlier_was_write) return same(past.write);
    return std::any_of(past.reads.begin(), past.reads.begin() + past.n_reads, same);
}

// A conflict is told once for all bytes of an operation that share a past. The first of the ranges that is to be
// reported; null where lanes alone were at fault, and none of those that count.
const Range* guilty(Warp& w, Cta& target, const SharedRanges& r, const Range& at, const Conflict& c,
                    const Accessor& who, Proxy proxy) {
    if (!w.clocks.by_lane || !c.earlier || c.stale) return &at;
    if (!linear_ordered(w, *c.earlier, c.earlier_was_write, who, proxy, {false})) return &at;
    for (const Range& range : r.ranges) {
        const u64 start = range.start + r.offset, place = target.shared_address(static_cast<u32>(start));
        bool met = &range == &at;
        if (!met)
            target.shared_shadow->each_past(start, start + range.bytes,
                                            [&](const Past& past) { met = met || is_of(past, c); });
        if (met && !lanes_acquit(w, c, who, proxy, place, place + range.bytes)) return &range;
    }
    return nullptr;
}

// Released kernels load what others may be writing, and drop what comes of it.
bool waits_for_use(Warp& w, const Conflict& c, const Accessor& who, const char* rule) {
    const Machine& m = machine_of(w);
    return m.profile == Profile::lenient && c.earlier_was_write && !c.stale && !who.write &&
           static_cast<Op>(m.program->insts[who.pc].op) == Op::ld && std::string_view(rule) == "race";
}

bool is_of_earlier_launch(Warp& w, const Access& earlier, const Accessor& who) {
    return earlier.cluster != who.cluster && machine_of(w).launch_of(earlier.cluster);
}

// What a launch that nothing orders before this access keeps it from being: complete.
std::string why_in_flight(const Warp& w, u32 launch) {
    const Machine& m = *w.cta->cluster->machine;
    const u32 last = m.primary();
    if (last && launch != last && w.clocks.knows_launch(last))
        return format(
            "this kernel waits for %s alone (griddepcontrol.wait), which may be complete before: it does not "
            "wait for %s itself",
            m.name_of_launch(last).c_str(), m.name_of_launch(launch).c_str());
    return "no griddepcontrol.wait in between";
}

void report_linear(Warp& w, const Conflict& c, const Accessor& who, Proxy proxy, const Place& where) {
    Machine& m = machine_of(w);
    if (may_be_dropped(w, c, who)) return;
    const bool in_flight = c.earlier && is_of_earlier_launch(w, *c.earlier, who);
    if (in_flight && c.stale && linear_ordered(w, *c.earlier, true, who, proxy)) return;
    const i32 pc = static_cast<i32>(who.pc);
    const i32 other = c.earlier ? static_cast<i32>(c.earlier->pc) : -1;
    if (in_flight && m.beside(m.launch_of(c.earlier->cluster))) {
        if (m.findings->seen("stream-race", pc, other)) return;
        const Wording say(true);
        const u32 earlier = m.launch_of(c.earlier->cluster);
        m.report_beside(w, "stream-race",
                        format("%s %s %s, which %s %s: no event and no synchronisation orders the two",
                               describe_agent(*w.cta->cluster, who.agent).c_str(), who.write ? "writes" : "reads",
                               say.place(where).c_str(), m.in_its_stream(earlier).c_str(),
                               c.earlier_was_write ? "writes" : "reads"),
                        {pc, other, earlier});
        return;
    }
    const u32 launch = in_flight ? m.launch_of(c.earlier->cluster) : 0;
    if (const DeviceGrid* const grid = in_flight ? m.tree->of_launch(launch) : nullptr) {
        if (m.findings->seen("grid-race", pc, -1)) return;
        const Wording say(true);
        m.report(&w, "grid-race",
                 format("%s %s %s, which %s %s at PTX line %u: %s", describe_agent(*w.cta->cluster, who.agent).c_str(),
                        who.write ? "writes" : "reads", say.place(where).c_str(), m.tree->name_of(*grid).c_str(),
                        c.earlier_was_write ? "writes" : "reads", grid->program->insts[c.earlier->pc].line,
                        m.tree->is_above(*grid) ? "that is not ordered before its launch of this grid"
                                                : "no stream and no event orders the two grids"),
                 pc);
        return;
    }
    if (in_flight) {
        if (m.findings->seen("launch-race", pc, other)) return;
        const Wording say(true);
        m.report_beside(w, "launch-race",
                        format("%s %s %s, which %s, that may still be running, %s: %s",
                               describe_agent(*w.cta->cluster, who.agent).c_str(), who.write ? "writes" : "reads",
                               say.place(where).c_str(), m.name_of_launch(launch).c_str(),
                               c.earlier_was_write ? "writes" : "reads", why_in_flight(w, launch).c_str()),
                        {pc, other, launch});
        return;
    }
    const char* rule = explain_linear(w, c, who, proxy, where, Wording(false)).rule;
    if (m.findings->seen(rule, pc, other)) return;
    Verdict told = explain_linear(w, c, who, proxy, where, Wording(true));
    // Of another cluster's store nobody knows any longer which lane wrote these bytes: it may be the one that fenced.
    const bool unsure = c.earlier && c.earlier->cluster != who.cluster && std::string_view(rule) == "lane-alone";
    if (waits_for_use(w, c, who, rule))
        doubt(w, {rule, std::move(told.message), pc, other});
    else
        m.report(w, std::move(told), pc, other, unsure ? Severity::warning : Severity::error);
}

void report_mbarrier_accessed(Warp& w, const Cta& target, u32 offset, const Accessor& who) {
    const Mbarrier& bar = target.mbarriers.at(offset);
    machine_of(w).report(&w, "mbarrier-accessed",
                         format("%s %s memory where an mbarrier lives, at %s: no mbarrier.inval before",
                                describe_agent(*target.cluster, who.agent).c_str(), who.write ? "writes" : "reads",
                                shared_place(target, offset).c_str()),
                         static_cast<i32>(who.pc), bar.init_pc);
}

// One by one only where an mbarrier lies between the first byte and the last.
void check_mbarriers(Cta& target, Warp& w, const SharedRanges& r, const Accessor& who) {
    if (r.low >= r.end || !target.live_mbarriers.find(r.low, r.end)) return;
    for (const Range& range : r.ranges)
        if (const u32* bar = target.live_mbarriers.find(range.start + r.offset, range.start + r.offset + range.bytes))
            report_mbarrier_accessed(w, target, *bar, who);
}

// What is written has a value again. Loads are followed; what reads otherwise, an MMA or a copy, uses what it reads.
void note_values(Cta& target, Warp& w, const SharedRanges& r, const Accessor& who) {
    const bool loads = &target == w.cta && static_cast<Op>(machine_of(w).program->insts[who.pc].op) == Op::ld;
    for (const Range& range : r.ranges) {
        const auto from = target.shared_valued.begin() + static_cast<std::ptrdiff_t>(range.start + r.offset);
        const auto to = from + static_cast<std::ptrdiff_t>(range.bytes);
        if (who.write)
            std::fill(from, to, u8{1});
        else if (!loads && std::find(from, to, u8{0}) != to)
            return machine_of(w).report(&w, "uninitialised-shared",
                                        "it reads what was computed from shared memory that nothing has written",
                                        static_cast<i32>(who.pc));
    }
}

}  // namespace

void touch_shared(Cta& target, Warp& w, std::span<const Range> ranges, const Accessor& who, bool proxy_async) {
    u64 low = ~u64{0}, end = 0;
    for (const Range& range : ranges) {
        low = std::min(low, range.start);
        end = std::max(end, range.start + range.bytes);
    }
    touch_shared(target, w, SharedRanges{ranges, 0, low, end}, who, proxy_async);
}

void touch_shared(Cta& target, Warp& w, const SharedRanges& r, const Accessor& who, bool proxy_async) {
    if (!machine_of(w).checks) return;
    check_mbarriers(target, w, r, who);
    if (!target.shared_valued.empty()) note_values(target, w, r, who);
    const AgentKind kind = info(*target.cluster, who.agent).kind;
    if (&target != w.cta || kind == AgentKind::bulk_load) note_outside_access(target, who.agent, who.clock, who.pc);
    const bool fenced = kind == AgentKind::tensor && machine_of(w).profile == Profile::strict;
    const Proxy proxy = proxy_async ? Proxy::async_shared : Proxy::generic;
    LinearShadow& shadow = *target.shared_shadow;
    const auto ordered = [&](const Access& e, bool was_write) {
        return linear_ordered(w, e, was_write, who, proxy) && (!fenced || fenced_for_mma(w, e, who));
    };
    if (!r.blocks.empty() && r.offset % LinearShadow::kBlockBytes == 0) {
        bool conflict = false;
        Touch touch(shadow.pasts(), who, true, ordered, [&](const Conflict&) { conflict = true; });
        if (shadow.touch_blocks(r.blocks, r.offset / LinearShadow::kBlockBytes, touch, conflict)) return;
    }
    const Range* at = nullptr;
    Touch touch(shadow.pasts(), who, true, ordered, [&](const Conflict& c) {
        if (c.uninitialised && at->start + r.offset < kSharedStart) return;  // the system's, which may have written it
        const bool unfenced = fenced && c.earlier && !fenced_for_mma(w, *c.earlier, who);
        const Range* const range = unfenced ? at : guilty(w, target, r, *at, c, who, proxy);
        if (!range) return;
        report_linear(w, c, who, proxy, [&] {
            const u64 start = range->start + r.offset;
            return format("shared memory in [0x%llx, 0x%llx) of %s", (unsigned long long)start,
                          (unsigned long long)(start + range->bytes), name_of(target).c_str());
        });
    });
    shadow.touch_each(r.ranges, r.offset, at, touch, proxy_async && r.blocks.empty() ? Grain::chunks : Grain::cells);
}

// What accesses global memory, where agents of other clusters may have been.
Accessor of_cluster(const Warp& w, Accessor who) {
    who.cluster = w.cta->cluster->number;
    who.kind = info(*w.cta->cluster, who.agent).kind;
    return who;
}

void doubt(Warp& w, Doubt why) {
    w.doubt = std::move(why);
    w.unwritten = true;
}

bool races(Warp& w, LinearShadow& shadow, u64 offset, u64 bytes, const Accessor& who) {
    bool ordered = true;
    shadow.each_past(offset, offset + bytes, [&](const Past& past) {
        ordered = ordered && (!past.write.clock || linear_ordered(w, past.write, true, who, Proxy::generic));
    });
    return !ordered;
}

bool written(Machine& m, const Allocation& a, u64 address, u64 bytes) {
    if (a.written.complete()) return true;
    bool all = true;
    a.written.each_gap(address - a.base, address - a.base + bytes, [&](u64 begin, u64 end) {
        LinearShadow* const shadow = m.global.existing_shadow(a);
        all = all && shadow && shadow->written(begin, end - begin);
    });
    return all;
}

namespace {

// Released kernels copy what nothing has written, behind the end of a sequence, and drop it; what a plain load brings
// is followed.
void report_unwritten(const Allocation& a, Warp& w, const Range& r, const Accessor& who) {
    Machine& m = machine_of(w);
    const Op op = static_cast<Op>(m.program->insts[who.pc].op);
    if (m.profile == Profile::lenient && op != Op::atom && op != Op::ld_sync) {
        if (op == Op::ld || op == Op::tex || op == Op::suld) doubt(w, {});
        return;
    }
    m.report(&w, "uninitialised-global",
             format("%s reads '%s' at byte %llu, which neither the host nor a kernel has written",
                    describe_agent(*w.cta->cluster, who.agent).c_str(), a.name.c_str(),
                    (unsigned long long)(r.start - a.base)),
             static_cast<i32>(who.pc));
}

bool is_exchange(const Inst& i) {
    return static_cast<Op>(i.op) == Op::atom && static_cast<Atom>(i.mods >> kAtomShift & 0xF) == Atom::exch;
}

}  // namespace

void touch_global(Allocation& a, Warp& w, std::span<const Range> ranges, const Accessor& accessor, bool proxy_async) {
    Machine& m = machine_of(w);
    if (m.global.logs())
        for (const Range& range : ranges) m.global.note(a, range.start, range.bytes, accessor.write);
    if (!m.checks) return;
    if (!accessor.write && !a.written.complete() && !is_exchange(m.program->insts[accessor.pc]))
        for (const Range& range : ranges)
            if (!written(m, a, range.start, range.bytes)) report_unwritten(a, w, range, accessor);
    const Accessor who = of_cluster(w, accessor);
    const Proxy proxy = proxy_async ? Proxy::async_global : Proxy::generic;
    const Range* at = nullptr;
    LinearShadow& shadow = m.global.shadow(a);
    Touch touch(
        shadow.pasts(), who, false,
        [&](const Access& e, bool was_write) { return linear_ordered(w, e, was_write, who, proxy); },
        [&](const Conflict& c) {
            // The agents of another cluster have numbers of their own: nobody tells its lanes apart any longer.
            const bool by_lane = w.clocks.by_lane && c.earlier && c.earlier->cluster == who.cluster;
            if (by_lane && !c.stale && lanes_acquit(w, c, who, proxy, 0, 0)) return;
            report_linear(w, c, who, proxy, [&] {
                return format("'%s' at byte %llu", a.name.c_str(), (unsigned long long)(at->start - a.base));
            });
        });
    shadow.touch_each(ranges, u64{0} - a.base, at, touch, Grain::cells);
}

namespace {

// Calls walk(touch, conflict) with a touch that sets `conflict` in place of reporting it.
template <class Walk>
auto touch_quietly(LinearShadow& shadow, Warp& w, const Accessor& who, Proxy proxy, bool check_uninitialised,
                   Walk walk) {
    bool conflict = false;
    Touch touch(
        shadow.pasts(), who, check_uninitialised,
        [&](const Access& e, bool was_write) { return linear_ordered(w, e, was_write, who, proxy); },
        [&](const Conflict&) { conflict = true; });
    return walk(touch, conflict);
}

bool touch_lanes(LinearShadow& shadow, Warp& w, const LanePieces& pieces, u64 offset, const Accessor& who,
                 bool check_uninitialised) {
    return touch_quietly(shadow, w, who, Proxy::generic, check_uninitialised, [&](auto& touch, bool& conflict) {
        return shadow.touch_lanes(pieces, offset, touch, conflict);
    });
}

}  // namespace

bool touch_shared_lanes(Warp& w, const LanePieces& pieces, const Accessor& who) {
    const u64 own = u64{w.cta->rank} << kSharedRankShift;
    if (!w.cta->shared_valued.empty() || w.cta->live_mbarriers.find(pieces.low - own, pieces.end - own)) return false;
    return touch_lanes(*w.cta->shared_shadow, w, pieces, u64{0} - own, who, true);
}

bool touch_global_lanes(Allocation& a, Warp& w, const LanePieces& pieces, const Accessor& accessor) {
    if (!accessor.write && !a.written.complete()) return false;
    return touch_lanes(machine_of(w).global.shadow(a), w, pieces, u64{0} - a.base, of_cluster(w, accessor), false);
}

bool touch_global_quietly(Allocation& a, Warp& w, std::span<const Range> ranges, const Accessor& accessor) {
    Machine& m = machine_of(w);
    if (m.global.logs())
        for (const Range& range : ranges) m.global.note(a, range.start, range.bytes, accessor.write);
    if (!m.checks) return true;
    if (!a.written.complete()) return false;
    const Range* at = nullptr;
    LinearShadow& shadow = m.global.shadow(a);
    return touch_quietly(shadow, w, of_cluster(w, accessor), Proxy::generic, false, [&](auto& touch, bool& conflict) {
        shadow.touch_each(ranges, u64{0} - a.base, at, touch, Grain::cells);
        return !conflict;
    });
}

bool touch_global_blocks(Allocation& a, Warp& w, std::span<const BlockChunks> blocks, const Accessor& accessor) {
    Machine& m = machine_of(w);
    if (!m.checks) return true;
    if (!accessor.write && !a.written.complete()) return false;
    LinearShadow& shadow = m.global.shadow(a);
    return touch_quietly(shadow, w, of_cluster(w, accessor), Proxy::async_global, false,
                         [&](auto& touch, bool& conflict) { return shadow.touch_blocks(blocks, 0, touch, conflict); });
}

}  // namespace ptxm
