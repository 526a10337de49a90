// mbarrier: phase, pending count, tx-count (PTX ISA 9.7.13.15).
#include "ptx/barriers/mbarrier.hpp"

#include <algorithm>

#include "machine/addresses.hpp"
#include "machine/machine.hpp"
#include "machine/names.hpp"
#include "machine/observer.hpp"
#include "order/conflicts/cta_exit.hpp"

namespace ptxm {
namespace {

constexpr i64 kMaxTx = (1 << 20) - 1;

void wake_waiters(Cta& cta, u32 offset) {
    const u32 address = cta.shared_address(offset);
    for (auto& c : cta.cluster->ctas) {
        for (Warp& w : c->warps) {
            for (Fragment& f : w.fragments) {
                if (f.wait != Wait::mbarrier || f.wait_mbar != address) continue;
                f.wait = Wait::none;
                cta.cluster->woken = true;
                // It may ask again first, and the barrier may have moved on by then.
                if (cta.cluster->machine->schedule == Schedule::pct && cta.cluster->random() % 4 == 0) continue;
                f.wait_over = true;
                observe_phase(w, cta.mbarriers.at(offset), {f.wait_relaxed, f.wait_narrow}, f.mask);
                w.time = std::max(w.time, cta.cluster->now);
            }
        }
    }
}

}  // namespace

MbarrierTarget place_of_mbarrier(Warp& w, u64 address, const char* what) {
    if ((address & kWindowMask) == kSharedWindow) address &= ~kWindowMask;
    const SharedRef ref = resolve_shared(w, static_cast<u32>(address), 8, what);
    if (ref.offset % 8)
        throw Fault("misaligned", format("%s at %s: an mbarrier is 8-byte aligned", what,
                                         shared_place(*ref.cta, ref.offset).c_str()));
    const auto it = ref.cta->mbarriers.find(ref.offset);
    return {ref.cta, ref.offset, it == ref.cta->mbarriers.end() ? nullptr : &it->second};
}

namespace {

MbarrierTarget find_mbarrier(Warp& w, u64 address, const char* what) {
    const MbarrierTarget found = place_of_mbarrier(w, address, what);
    if (!found.bar)
        throw Fault("mbarrier-uninitialised", format("%s at %s, where no mbarrier has been initialised", what,
                                                     shared_place(*found.cta, found.offset).c_str()));
    return found;
}

// An arrival that no warp knows of by knowing another warp: a commit's, a copy's.
constexpr Use kUntraced{0, ~0u, 0};

// The access that the arriving warp has just made (mbarrier_of).
Use arrival_of(const Warp& w, const Mbarrier& bar) { return *std::ranges::find(bar.uses, w.clocks.self, &Use::agent); }

}  // namespace

u32 known_phases(const Warp& w, const Mbarrier& bar) {
    const auto knows = [&](const std::vector<Use>& all) {
        return !all.empty() &&
               std::ranges::all_of(all, [&](const Use& u) { return w.clocks.known_shared(u.agent) >= u.clock; });
    };
    if (knows(bar.arrivals[1])) return bar.phase;
    return std::max(w.clocks.known_shared(bar.phases), knows(bar.arrivals[2]) ? bar.phase - 1 : 0);
}

namespace {

// What a wait that acquires nothing leaves to the next fence.
void collect(Warp& w, const Message& m) {
    w.fences.collected.join(m);
    if (w.cta->cluster->ctas.size() == 1) w.fences.collected_cta.join(m);
    w.fences.has_collected = true;
    w.clocks.acquire_tc(m);
}

}  // namespace

void observe_phase(Warp& w, const Mbarrier& bar, WaitOrder order, u32 lanes) {
    if (order.relaxed) {
        w.clocks.generic.raise(bar.phases, bar.phase);
        collect(w, bar.completed);
    } else {
        w.clocks.acquire(bar.completed, w.acting(lanes));
    }
    if (!bar.outside) return;
    if (order.relaxed || order.narrow) collect(w, bar.outside->completed);
    if (!order.relaxed && order.narrow) w.clocks.leave_out(bar.outside->completed);
    if (!order.relaxed && !order.narrow) w.clocks.acquire(bar.outside->completed, w.acting(lanes));
}

namespace {

// The copies that are pending, where there are no others than those of the barrier: the first lines of them. Then the
// arrival of the warp that issued the first, in whose place nothing has announced their bytes.
std::vector<Note> copies_in_flight(const Cluster& cluster, const Mbarrier& bar) {
    constexpr std::size_t kMost = 4;
    std::vector<Note> notes;
    u32 copies = 0;
    const Warp* issuer = nullptr;
    cluster.pending.each([&](const AsyncOp& op) {
        if (op.tensor || op.store || op.pc < 0) return;
        if (!copies++) issuer = &cluster.ctas[op.cta]->warps[op.warp];
        if (notes.size() < kMost && std::ranges::find(notes, op.pc, &Note::pc) == notes.end())
            notes.push_back({op.pc, "in flight: the copy"});
    });
    if (!issuer || copies != bar.in_flight) return {};
    const auto by = std::ranges::find(bar.arrivals[0], issuer->clocks.self, &Use::agent);
    if (!bar.announced && by != bar.arrivals[0].end() && by->clock != kUntraced.clock)
        notes.push_back({static_cast<i32>(by->pc), "beside the copy, without expect_tx: the arrival"});
    return notes;
}

void report_early_completion(Cta& cta, u32 offset, const Mbarrier& bar, i32 pc) {
    constexpr const char* kRule = "mbarrier-early-completion";
    Machine& m = *cta.cluster->machine;
    m.report(cta, kRule,
             format("the mbarrier at %s completes phase %u with %u bulk copies of that phase still in flight: %s",
                    shared_place(cta, offset).c_str(), bar.phase, bar.in_flight,
                    bar.announced ? "expect_tx announced too few bytes"
                                  : "no expect_tx of this phase has announced their bytes"),
             pc, bar.init_pc);
    Finding* const told = m.findings ? m.findings->find(kRule, pc, bar.init_pc) : nullptr;
    if (!told || told->count > 1) return;
    for (Note& note : copies_in_flight(*cta.cluster, bar)) told->add_note(std::move(note));
}

}  // namespace

void settle_phase(Cta& cta, u32 offset, Mbarrier& bar, i32 pc) {
    if (bar.pending != 0 || bar.tx != 0) return;
    if (bar.in_flight) report_early_completion(cta, offset, bar, pc);
    cta.cluster->note_progress();
    bar.phase += 1;
    show_barrier(BarrierEvent::phase, cta, offset, bar, nullptr, pc, bar.phase);
    std::rotate(bar.arrivals, bar.arrivals + 2, bar.arrivals + 3);  // the vectors keep their memory
    bar.arrivals[0].clear();
    bar.pending = bar.expected;
    bar.in_flight = bar.announced = 0;
    std::swap(bar.completed, bar.arriving);  // both keep their memory
    bar.arriving.clear();
    if (bar.outside) {
        std::swap(bar.outside->completed, bar.outside->arriving);
        bar.outside->arriving.clear();
    }
    if (bar.completed.cluster == kNoCluster) bar.completed.cluster = cta.cluster->number;
    bar.completed.generic.raise(bar.phases, bar.phase);
    if (bar.has_agent) {
        bar.completed.generic.raise(bar.agent, bar.phase);
        bar.completed.async.raise(bar.agent, bar.phase);
    }
    wake_waiters(cta, offset);
}

MbarrierTarget mbarrier_of(Warp& w, u64 address, const char* what, u32 clock) {
    const MbarrierTarget t = find_mbarrier(w, address, what);
    if (!clock) clock = w.clocks.epoch();
    note_use(t.bar->uses, {w.clocks.self, clock, static_cast<u32>(w.pc())});
    if (t.cta != w.cta) note_outside_access(*t.cta, w.clocks.self, clock, static_cast<u32>(w.pc()));
    return t;
}

void expect_bytes(const MbarrierTarget& t, u32 bytes) {
    t.bar->tx += bytes;
    t.bar->announced += 1;
    note_use(t.bar->arrivals[0], kUntraced);
    if (bytes > kMaxTx || t.bar->tx > kMaxTx)
        throw Fault("mbarrier-tx-range", format("the tx-count of the mbarrier at %s exceeds 2^20-1",
                                                shared_place(*t.cta, t.offset).c_str()));
}

void check_mbarrier_visible(Warp& w, Mbarrier& bar, bool proxy_async) {
    Machine& m = machine_of(w);
    if (!m.checks) return;
    // fence.mbarrier_init, then a cluster barrier, publishes initialisations even if the arrival is relaxed: to the
    // warps that wait there, and to whom they synchronise with (Meta's TLX starts its worker warps behind a CTA
    // barrier).
    const std::optional<AgentId> barrier = w.cta->cluster->barrier.agent;
    if (bar.init_published && barrier && w.clocks.generic.get(*barrier) >= bar.init_published) return;
    const auto knows = [&](u32 clock) {
        return bar.init.agent == w.clocks.self || w.clocks.known_shared(bar.init.agent) >= clock;
    };
    if (!knows(bar.init.clock)) {
        m.report(&w, "mbarrier-race",
                 "an mbarrier is used with no synchronisation after its mbarrier.init by another warp", w.pc(),
                 bar.init_pc);
        return;
    }
    const bool fenced =
        (bar.init_fenced && knows(bar.init_fenced)) || w.clocks.async.get(bar.init.agent) >= bar.init.clock;
    if (proxy_async && !fenced)
        m.report_strict(&w, "mbarrier-missing-fence",
                        "an asynchronous operation uses an mbarrier whose initialisation no fence.mbarrier_init or "
                        "fence.proxy.async has made visible to it",
                        w.pc(), bar.init_pc);
}

Mbarrier& mbarrier_at(Warp& w, u32 address, const char* what) { return *mbarrier_of(w, address, what).bar; }

void mbarrier_arrive(Warp* w, Cta& cta, u32 offset, Mbarrier& bar, u32 count, const Message* message) {
    const i32 pc = w ? w->pc() : -1;
    show_barrier(BarrierEvent::arrive, cta, offset, bar, w, pc, count);
    if (count > bar.pending) {
        Machine& m = *cta.cluster->machine;
        const char* rule = "mbarrier-over-arrival";
        const std::string text = format("%u arrivals on the mbarrier at %s, which still expects %u in phase %u", count,
                                        shared_place(cta, offset).c_str(), bar.pending, bar.phase);
        if (w)
            m.report(w, rule, text, pc, bar.init_pc);
        else
            m.report(cta, rule, text, pc, bar.init_pc);
        throw Fault("mbarrier-over-arrival", format("the mbarrier at %s received more arrivals than its count of %u",
                                                    shared_place(cta, offset).c_str(), bar.expected));
    }
    bar.pending -= count;
    if (message) bar.arriving.join(*message);
    note_use(bar.arrivals[0], w ? arrival_of(*w, bar) : kUntraced);
    settle_phase(cta, offset, bar, pc);
}

TxSource begin_tx(Warp& w, u32 address, const char* what) {
    const MbarrierTarget t = find_mbarrier(w, address, what);
    check_mbarrier_visible(w, *t.bar, true);
    Mbarrier& bar = *t.bar;
    if (!bar.has_agent) {
        bar.has_agent = true;
        bar.agent = t.cta->cluster->new_agent({AgentKind::bulk_load, static_cast<u16>(t.cta->rank), 0, t.offset});
    }
    bar.in_flight += 1;
    show_barrier(BarrierEvent::promise, *t.cta, t.offset, bar, &w, w.pc(), 0);
    const TxSource source{t.cta, t.offset, bar.agent, bar.phase};
    // The copy accesses the mbarrier, when it completes: whoever has waited for that phase knows it.
    if (t.cta != w.cta) note_outside_access(*t.cta, source.agent, source.clock(), static_cast<u32>(w.pc()));
    return source;
}

void end_tx(const TxSource& source, u32 bytes, i32 pc) {
    auto it = source.cta->mbarriers.find(source.offset);
    if (it == source.cta->mbarriers.end())
        throw Fault("mbarrier-uninitialised",
                    format("a bulk copy completes on %s, where the mbarrier has been invalidated",
                           shared_place(*source.cta, source.offset).c_str()));
    mbarrier_complete_tx(*source.cta, source.offset, it->second, bytes, source.phase, pc);
}

void mbarrier_complete_tx(Cta& cta, u32 offset, Mbarrier& bar, u32 bytes, u32 issued_phase, i32 pc) {
    show_barrier(BarrierEvent::bytes, cta, offset, bar, nullptr, pc, bytes);
    if (bar.phase == issued_phase && bar.in_flight) bar.in_flight -= 1;
    bar.tx -= bytes;
    if (bar.tx < -kMaxTx)
        throw Fault("mbarrier-tx-range", format("the tx-count of the mbarrier at %s fell below -(2^20-1)",
                                                shared_place(cta, offset).c_str()));
    settle_phase(cta, offset, bar, pc);
}

}  // namespace ptxm
