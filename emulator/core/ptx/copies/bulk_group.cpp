// Bulk async-groups: cp.async.bulk.commit_group and wait_group (PTX ISA 9.7.9.25.3), and the two stages of an operation
// that completes through them: its sources have been read, its results are visible. These are stores and reductions.
// Loads complete on an mbarrier: bulk.cpp.
#include "ptx/copies/bulk_group.hpp"

#include <bit>

#include "isa/handlers.hpp"
#include "machine/async/async.hpp"
#include "machine/machine.hpp"
#include "ptx/copies/bulk.hpp"

namespace ptxm {

BulkLane& bulk_lane(Warp& w, u32 lane) {
    auto it = w.bulk.find(lane);
    if (it != w.bulk.end()) return it->second;
    BulkLane bulk;
    const AgentInfo info{AgentKind::bulk_store, static_cast<u16>(w.cta->rank), static_cast<u16>(w.index), lane};
    bulk.writes = w.cta->cluster->new_agent(info);
    bulk.reads = w.cta->cluster->new_agent({AgentKind::bulk_store_read, info.cta, info.warp, lane});
    return w.bulk.emplace(lane, std::move(bulk)).first->second;
}

namespace {

void wake(Warp& w) {
    for (Fragment& f : w.fragments)
        if (f.wait == Wait::bulk) f.wait = Wait::none;
}

// Whether all but the `allowed` most recent committed groups of a lane have come to the awaited stage.
bool complete(BulkLane& bulk, u32 allowed, bool read) {
    const u32 needed = bulk.committed > allowed ? bulk.committed - allowed : 0;
    while (bulk.read_front < bulk.committed && !bulk.groups[bulk.read_front].reads) ++bulk.read_front;
    while (bulk.written_front < bulk.committed && !bulk.groups[bulk.written_front].writes) ++bulk.written_front;
    return (read ? bulk.read_front : bulk.written_front) >= needed;
}

// Of a lane that has started no operation, every group so far is empty, and nothing waits for those: they are not
// counted. Kernels let whole warps commit what one lane has started.
Flow commit_bulk(Warp& w, const Inst&, u32 mask) {
    for (auto& [lane, bulk] : w.bulk) {
        if (!(mask >> lane & 1)) continue;
        bulk.committed += 1;
        bulk.groups.resize(bulk.committed);
    }
    return Flow::next;
}

Flow wait_bulk(Warp& w, const Inst& i, u32 mask) {
    const u32 allowed = static_cast<u32>(i.immediate);
    const bool read = i.mods & kBulkRead;
    for (auto& [lane, bulk] : w.bulk) {
        if (!(mask >> lane & 1) || complete(bulk, allowed, read)) continue;
        w.fragment().wait = Wait::bulk;
        w.cta->cluster->stalled += 1;
        return Flow::stay;
    }
    for (auto& [lane, bulk] : w.bulk) {
        if (!(mask >> lane & 1)) continue;
        (read ? bulk.waited_reads : bulk.waited) = GroupWait{w.pc(), allowed, bulk.committed};
        if (bulk.committed <= allowed) continue;
        const u32 clock = bulk.committed - allowed;
        for (VectorClock* view : {&w.clocks.generic, &w.clocks.async}) {
            view->raise(bulk.reads, clock);
            if (!read) view->raise(bulk.writes, clock);
        }
    }
    w.time = std::max(w.time, w.cta->cluster->now);
    return Flow::next;
}

}  // namespace

namespace {

bool same_store(Warp& w, const Inst& i, u32 a, u32 b) {
    const i32* o = w.ops(i);
    bool same = w.reg<u64>(o[0])[a] == w.reg<u64>(o[0])[b];
    const u32 words = static_cast<Op>(i.op) == Op::bulk_store ? 3 : i.n_src;
    for (u32 k = 1; k < words; ++k) same = same && w.reg<u32>(o[k])[a] == w.reg<u32>(o[k])[b];
    if (words < i.n_src) same = same && w.reg<u16>(o[words])[a] == w.reg<u16>(o[words])[b];  // .cp_mask
    return same;
}

}  // namespace

bool repeats_store(Warp& w, const Inst& i, u32 mask, u32 lane) {
    for (u32 l = 0; l < lane; ++l) {
        if (!(mask >> l & 1) || !same_store(w, i, l, lane)) continue;
        Machine& m = machine_of(w);
        static const std::string rule = "bulk-store-repeated";
        if (m.profile == Profile::strict && !m.findings->seen(rule, w.pc(), -1))
            m.report(
                &w, rule,
                format("lanes %u and %u issue the same bulk store, which is performed once for each of them", l, lane),
                w.pc());
        return true;
    }
    return false;
}

bool is_between_repeats(Warp& w, const Inst& i, u32 mask, u32 lane) {
    const u32 before = mask & ((1u << lane) - 1), after = mask & ~((2u << lane) - 1);
    return before && after && same_store(w, i, 31 - static_cast<u32>(std::countl_zero(before)), lane) &&
           same_store(w, i, static_cast<u32>(std::countr_zero(after)), lane);
}

bool repeats_last_store(Warp& w, const Inst& i, u32 mask, u32 lane) {
    const u32 before = mask & ((1u << lane) - 1);
    return before && same_store(w, i, 31 - static_cast<u32>(std::countl_zero(before)), lane);
}

bool is_among_many_repeats(Warp& w, const Inst& i, u32 mask, u32 lane) {
    if (!is_between_repeats(w, i, mask, lane)) return false;
    u32 alike = 0;
    for (u32 l = 0; l < lane && alike < Past::kReaders; ++l) alike += (mask >> l & 1) && same_store(w, i, l, lane);
    return alike >= Past::kReaders;
}

void start_bulk_store(Warp& w, u32 lane, u64 latency, std::function<void()> read, std::function<void()> write) {
    BulkLane& bulk = bulk_lane(w, lane);
    bulk.groups.resize(bulk.committed + 1);
    bulk.groups.back().reads += 1;
    bulk.groups.back().writes += 1;
    bulk.last_pc = w.pc();
    bulk.used = bulk.committed + 1;
    const u32 group = bulk.committed;
    AsyncOp first;
    first.store = true;
    first.cta = w.cta->rank;
    first.pc = w.pc();
    first.warp = w.index;
    AsyncOp second = first;
    second.outlives = true;
    second.complete = [&w, lane, group, write = std::move(write)] {
        write();
        w.bulk.at(lane).groups[group].writes -= 1;
        wake(w);
    };
    first.complete = [&w, lane, group, latency, read = std::move(read), second = std::move(second)]() mutable {
        read();
        w.bulk.at(lane).groups[group].reads -= 1;
        wake(w);
        second.time = w.cta->cluster->now + latency / 2;
        enqueue_async(*w.cta->cluster, std::move(second));
    };
    first.time = w.time + latency / 2;
    machine_of(w).stats.async_ops += 1;
    enqueue_async(*w.cta->cluster, std::move(first));
}

// clang-format off
#define PTXM_OPS_bulk_group(X)                                     \
    X(bulk_commit, copy, bulk_group, "cp.async.bulk.commit_group") \
    X(bulk_wait, copy, bulk_group, "cp.async.bulk.wait_group[.read=bulk_read] #groups")
// clang-format on

Handler bind_bulk_group(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::bulk_commit: return commit_bulk;
        case Op::bulk_wait: return wait_bulk;
        default: return nullptr;
    }
}

}  // namespace ptxm
