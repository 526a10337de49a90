// mbarrier: phase, pending count, tx-count (PTX ISA 9.7.13.15).
#include "handlers.hpp"
#include "lanes.hpp"

namespace ptxm {
namespace {

constexpr i64 kMaxTx = (1 << 20) - 1;

// A completed phase was seen. A relaxed wait learns that; what came before it, at its next acquiring fence.
void observe(Warp& w, const Mbarrier& bar, bool relaxed) {
    if (relaxed) {
        w.clocks.generic.raise(bar.phases, bar.phase);
        w.fences.collected.join(bar.completed);
        w.fences.has_collected = true;
    } else {
        w.clocks.acquire(bar.completed);
    }
}

void wake_waiters(Cta& cta, u32 offset) {
    const u32 address = cta.shared_address(offset);
    for (auto& c : cta.cluster->ctas) {
        for (Warp& w : c->warps) {
            for (Fragment& f : w.fragments) {
                if (f.wait != Wait::mbarrier || f.wait_mbar != address) continue;
                f.wait = Wait::none;
                f.wait_over = true;
                observe(w, cta.mbarriers.at(offset), f.wait_relaxed);
                w.time = std::max(w.time, cta.cluster->now);
            }
        }
    }
}

void settle_phase(Cta& cta, u32 offset, Mbarrier& bar, i32 pc) {
    if (bar.pending != 0 || bar.tx != 0) return;
    Machine& m = *cta.cluster->machine;
    if (bar.in_flight)
        m.report(nullptr, "mbarrier-early-completion",
                 format("the mbarrier at shared 0x%x completes phase %u with %u bulk copies of that phase still in "
                        "flight: expect_tx announced too few bytes",
                        offset, bar.phase, bar.in_flight),
                 pc, bar.init_pc);
    cta.cluster->note_progress();
    bar.phase += 1;
    bar.pending = bar.expected;
    bar.in_flight = 0;
    bar.completed = std::move(bar.arriving);
    bar.arriving = Message{};
    if (bar.completed.cluster == kNoCluster) bar.completed.cluster = cta.cluster->number;
    bar.completed.generic.raise(bar.phases, bar.phase);
    if (bar.has_agent) {
        bar.completed.generic.raise(bar.agent, bar.phase);
        bar.completed.async.raise(bar.agent, bar.phase);
    }
    wake_waiters(cta, offset);
}

struct Target {
    Cta* cta;
    u32 offset;
    Mbarrier* bar;
};

Target find_mbarrier(Warp& w, u64 address, const char* what) {
    if ((address & kWindowMask) == kSharedWindow) address &= ~kWindowMask;
    const SharedRef ref = resolve_shared(w, static_cast<u32>(address), 8, what);
    if (ref.offset % 8)
        throw Fault("misaligned", format("%s at shared 0x%x: an mbarrier is 8-byte aligned", what, ref.offset));
    auto it = ref.cta->mbarriers.find(ref.offset);
    if (it == ref.cta->mbarriers.end())
        throw Fault("mbarrier-uninitialised",
                    format("%s at shared 0x%x, where no mbarrier has been initialised", what, ref.offset));
    return {ref.cta, ref.offset, &it->second};
}

// Of an operation that the warp itself performs. `clock` is that of the access, when the warp has released since: 0 for
// now.
Target target_of(Warp& w, u64 address, const char* what, u32 clock = 0) {
    const Target t = find_mbarrier(w, address, what);
    if (t.cta != w.cta)
        note_outside_access(*t.cta, w.clocks.self, clock ? clock : w.clocks.epoch(), static_cast<u32>(w.pc()));
    return t;
}

// Of the instructions that have no .shared::cluster form.
void check_local(Warp& w, const Cta* target, const char* what) {
    if (target != w.cta)
        throw Fault("mbarrier-remote",
                    format("%s on an mbarrier of CTA rank %u; only arrive, expect_tx and complete_tx reach other CTAs",
                           what, target->rank));
}

// The state token: the phase, and the arrivals that were pending.
u64 state_token(const Mbarrier& bar) { return u64{bar.pending} << 32 | bar.phase; }
u32 token_phase(u64 state) { return static_cast<u32>(state); }

void expect(const Target& t, u32 bytes) {
    t.bar->tx += bytes;
    if (bytes > kMaxTx || t.bar->tx > kMaxTx)
        throw Fault("mbarrier-tx-range",
                    format("the tx-count of the mbarrier at shared 0x%x exceeds 2^20-1", t.offset));
}

u64 lane_address(Warp& w, i32 unit, u32 width, u32 lane, i64 offset) {
    const u64 base = width == 64 ? w.reg<u64>(unit)[lane] : w.reg<u32>(unit)[lane];
    return base + static_cast<u64>(offset);
}

// The ISA asks for mbarrier.inval first (9.7.13.15.9). Released kernels initialise a barrier twice before they use it,
// or anew between two uses; that is harmless while nothing waits for the phase in progress or counts towards it.
void reinitialise(Warp& w, Cta& cta, u32 offset) {
    auto it = cta.mbarriers.find(offset);
    if (it == cta.mbarriers.end()) return;
    const Mbarrier& old = it->second;
    if (old.in_flight || old.tx || old.pending != old.expected)
        throw Fault(
            "mbarrier-reinitialised-in-use",
            format("mbarrier.init at shared 0x%x over an mbarrier in the middle of phase %u", offset, old.phase));
    machine_of(w).report_strict(
        &w, "mbarrier-reinitialised",
        format("mbarrier.init at shared 0x%x over a live mbarrier: no mbarrier.inval in between", offset), w.pc(),
        old.init_pc);
    cta.mbarriers.erase(it);
}

Flow init(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        u64 address = lane_address(w, o[0], i.width_src, l, i.immediate);
        if ((address & kWindowMask) == kSharedWindow) address &= ~kWindowMask;
        const SharedRef ref = resolve_shared(w, static_cast<u32>(address), 8, "mbarrier.init");
        check_local(w, ref.cta, "mbarrier.init");
        if (ref.offset % 8)
            throw Fault("misaligned",
                        format("mbarrier.init at shared 0x%x: an mbarrier is 8-byte aligned", ref.offset));
        const u32 count = w.reg<u32>(o[1])[l];
        if (count == 0 || count >= 1u << 20)
            throw Fault("mbarrier-count", format("mbarrier.init with count %u; valid is 1..2^20-1", count));
        reinitialise(w, *ref.cta, ref.offset);
        Mbarrier bar;
        bar.expected = bar.pending = count;
        bar.init_pc = w.pc();
        bar.init = Accessor{w.clocks.self, w.clocks.epoch(), static_cast<u32>(w.pc()), true}.access();
        bar.phases = w.cta->cluster->new_agent({AgentKind::phase, static_cast<u16>(ref.cta->rank), 0, ref.offset});
        ref.cta->mbarriers.emplace(ref.offset, std::move(bar));
    }
    return Flow::next;
}

Flow inval(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        Target t = target_of(w, lane_address(w, o[0], i.width_src, l, i.immediate), "mbarrier.inval");
        check_local(w, t.cta, "mbarrier.inval");
        check_mbarrier_visible(w, *t.bar, false);
        if (t.bar->in_flight)
            machine_of(w).report(&w, "mbarrier-inval-in-flight",
                                 format("mbarrier.inval at shared 0x%x with bulk copies in flight", t.offset), w.pc(),
                                 t.bar->init_pc);
        t.cta->mbarriers.erase(t.offset);
    }
    return Flow::next;
}

// The lanes of one arrive have no order: which of them opened the next phase is chance.
void report_split_arrival(Warp& w, const Target& t) {
    machine_of(w).report(
        &w, "mbarrier-split-arrival",
        format("lanes of one mbarrier.arrive complete a phase of the mbarrier at shared 0x%x and arrive "
               "for the next one: its count of %u is not the number of threads that arrive",
               t.offset, t.bar->expected),
        w.pc(), t.bar->init_pc);
}

void check_arrival(const Inst& i, const Target& t, u32 count) {
    if (count == 0)
        throw Fault("mbarrier-count", format("an arrival of count 0 at shared 0x%x; valid is 1..2^20-1", t.offset));
    if ((i.mods & kMbarNoComplete) && count >= t.bar->pending)
        throw Fault("mbarrier-no-complete",
                    format("%u arrivals with .noComplete complete the phase of the mbarrier at shared 0x%x, which "
                           "expects %u",
                           count, t.offset, t.bar->pending));
}

// Operands: [state], address, [tx bytes | count]. Every active lane arrives. arrive_drop also lowers the count of later
// phases (PTX ISA 9.7.13.15.14).
Flow arrive(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const i32* s = o + i.n_dst;
    const bool relaxed = i.mods & kMbarRelaxed;
    const u32 clock = w.clocks.epoch();
    Message message;  // of a relaxed arrival: what an earlier fence releases
    if (!relaxed)
        message = w.clocks.release();
    else if (w.fences.has_fenced)
        message = w.fences.fenced;
    w.cta->cluster->now = std::max(w.cta->cluster->now, w.time);
    const Mbarrier* first = nullptr;
    u32 first_phase = 0;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        Target t = target_of(w, lane_address(w, s[0], i.width_src, l, i.immediate), "mbarrier.arrive", clock);
        if (!first) {
            first = t.bar;
            first_phase = t.bar->phase;
        } else if (t.bar == first && t.bar->phase != first_phase) {
            report_split_arrival(w, t);
        }
        check_mbarrier_visible(w, *t.bar, false);
        if (i.n_dst && o[0] >= 0) {
            if (t.cta != w.cta)
                throw Fault("mbarrier-remote-state",
                            format("mbarrier.arrive on the mbarrier of CTA rank %u returns no state", t.cta->rank));
            w.reg<u64>(o[0])[l] = state_token(*t.bar);
        }
        u32 count = 1;
        if (i.mods & kMbarExpectTx)
            expect(t, w.reg<u32>(s[1])[l]);
        else if (i.n_src > 1)
            count = w.reg<u32>(s[1])[l];
        check_arrival(i, t, count);
        if (i.mods & kMbarDrop) t.bar->expected -= std::min(count, t.bar->expected);
        mbarrier_arrive(&w, *t.cta, t.offset, *t.bar, count, &message);
    }
    return Flow::next;
}

Flow expect_tx(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        Target t = target_of(w, lane_address(w, o[0], i.width_src, l, i.immediate), "mbarrier.expect_tx");
        check_mbarrier_visible(w, *t.bar, false);
        expect(t, w.reg<u32>(o[1])[l]);
        settle_phase(*t.cta, t.offset, *t.bar, w.pc());  // of bytes that came before they were expected
    }
    return Flow::next;
}

// complete-tx without a copy: what an asynchronous operation would signal (PTX ISA 9.7.13.15.12).
Flow complete_tx(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        Target t = target_of(w, lane_address(w, o[0], i.width_src, l, i.immediate), "mbarrier.complete_tx");
        check_mbarrier_visible(w, *t.bar, false);
        mbarrier_complete_tx(*t.cta, t.offset, *t.bar, w.reg<u32>(o[1])[l], ~0u, w.pc());
    }
    return Flow::next;
}

Flow pending_count(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l)
        if (mask >> l & 1) w.reg<u32>(o[0])[l] = static_cast<u32>(w.reg<u64>(o[1])[l] >> 32);
    return Flow::next;
}

// A parity (or a state) names a phase only while that phase is the one in progress or the one before it (PTX ISA
// 9.7.13.15.16). The phase that is meant: the last that the warp knows to be complete, by whatever path of
// synchronisation, or the one after it, by parity. Where another has completed since, the wait has missed its phase:
// it takes a later one for it, or blocks. A waiter that the barrier cannot overtake is never seen here.
void check_phase_lag(Warp& w, const Inst& i, u32 lane, const Target& t) {
    const Mbarrier& bar = *t.bar;
    i64 meant = 0;
    if (i.mods & kMbarParity) {
        const i64 known = w.clocks.generic.get(bar.phases);
        meant = (known & 1) == (w.reg<u32>(w.ops(i)[2])[lane] & 1) ? known : known - 1;
    } else {
        meant = static_cast<i64>(token_phase(w.reg<u64>(w.ops(i)[2])[lane]));
    }
    if (bar.phase <= meant + 1) return;
    machine_of(w).report(&w, "mbarrier-phase-aliasing",
                         format("warp %u waits for phase %lld of the mbarrier at shared 0x%x, which has completed %u "
                                "phases: nothing keeps it from overtaking this waiter",
                                w.index, (long long)meant, t.offset, bar.phase),
                         w.pc(), bar.init_pc);
}

// test_wait and try_wait: operands p, address, parity or state. A failed try_wait suspends the fragment until the phase
// completes, which is one of the outcomes the ISA allows; lanes that wait for different things poll. Another is that
// its time runs out: the random schedule draws that half of the time, for kernels that do not try again.
Flow wait(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    // Suspended until its phase completed: true even if the barrier has moved on since.
    if (w.fragment().wait_over) {
        w.fragment().wait_over = false;
        const u32 lane = static_cast<u32>(std::countr_zero(mask));
        check_phase_lag(w, i, lane,
                        target_of(w, lane_address(w, o[1], i.width_src, lane, i.immediate), "mbarrier wait"));
        w.pred(o[0]) |= mask;
        return Flow::next;
    }
    u32 done = 0;
    u64 address = 0, blocked_on = 0;
    bool same = true;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        address = lane_address(w, o[1], i.width_src, l, i.immediate);
        Target t = target_of(w, address, "mbarrier wait");
        check_local(w, t.cta, "a wait");
        check_mbarrier_visible(w, *t.bar, false);
        check_phase_lag(w, i, l, t);
        const bool complete = i.mods & kMbarParity ? (t.bar->phase & 1) != (w.reg<u32>(o[2])[l] & 1)
                                                   : t.bar->phase != token_phase(w.reg<u64>(o[2])[l]);
        if (complete) {
            done |= 1u << l;
            observe(w, *t.bar, i.mods & kMbarRelaxed);
        } else {
            const u64 canonical = t.cta->shared_address(t.offset);
            same = same && (blocked_on == 0 || blocked_on == canonical);
            blocked_on = canonical;
        }
    }
    Machine& m = machine_of(w);
    m.stats.barrier_waits += 1;
    const bool times_out = m.schedule == Schedule::random && done != mask && w.cta->cluster->random() % 2 == 0;
    if (done != mask && done == 0 && same && (i.mods & kMbarBlocking) && !times_out) {
        Fragment& f = w.fragment();
        f.wait = Wait::mbarrier;
        f.wait_mbar = static_cast<u32>(blocked_on);
        f.wait_relaxed = i.mods & kMbarRelaxed;
        f.wait_parity = w.reg<u32>(o[2])[std::countr_zero(mask)];
        return Flow::stay;
    }
    if (done != mask) w.spun = true;
    w.pred(o[0]) = (w.pred(o[0]) & ~mask) | done;
    return Flow::next;
}

}  // namespace

void check_mbarrier_visible(Warp& w, Mbarrier& bar, bool proxy_async) {
    Machine& m = machine_of(w);
    // fence.mbarrier_init, then a cluster barrier, publishes initialisations even if the arrival is relaxed.
    if (bar.init_published && w.cluster_waits >= bar.init_published) return;
    if (!m.checks) return;
    const auto knows = [&](u32 clock) {
        return bar.init.agent == w.clocks.self || w.clocks.generic.get(bar.init.agent) >= clock;
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

Mbarrier& mbarrier_at(Warp& w, u32 address, const char* what) { return *target_of(w, address, what).bar; }

void mbarrier_arrive(Warp* w, Cta& cta, u32 offset, Mbarrier& bar, u32 count, const Message* message) {
    const i32 pc = w ? w->pc() : -1;
    if (count > bar.pending) {
        cta.cluster->machine->report(
            w, "mbarrier-over-arrival",
            format("%u arrivals on the mbarrier at shared 0x%x, which still expects %u in phase %u", count, offset,
                   bar.pending, bar.phase),
            pc, bar.init_pc);
        throw Fault(
            "mbarrier-over-arrival",
            format("the mbarrier at shared 0x%x received more arrivals than its count of %u", offset, bar.expected));
    }
    bar.pending -= count;
    if (message) bar.arriving.join(*message);
    settle_phase(cta, offset, bar, pc);
}

TxSource begin_tx(Warp& w, u32 address, const char* what) {
    const Target t = find_mbarrier(w, address, what);
    check_mbarrier_visible(w, *t.bar, true);
    Mbarrier& bar = *t.bar;
    if (!bar.has_agent) {
        bar.has_agent = true;
        bar.agent = t.cta->cluster->new_agent({AgentKind::bulk_load, static_cast<u16>(t.cta->rank), 0, t.offset});
    }
    bar.in_flight += 1;
    const TxSource source{t.cta, t.offset, bar.agent, bar.phase};
    // The copy accesses the mbarrier, when it completes: whoever has waited for that phase knows it.
    if (t.cta != w.cta) note_outside_access(*t.cta, source.agent, source.clock(), static_cast<u32>(w.pc()));
    return source;
}

void end_tx(const TxSource& source, u32 bytes, i32 pc) {
    auto it = source.cta->mbarriers.find(source.offset);
    if (it == source.cta->mbarriers.end())
        throw Fault(
            "mbarrier-uninitialised",
            format("a bulk copy completes on shared 0x%x, where the mbarrier has been invalidated", source.offset));
    mbarrier_complete_tx(*source.cta, source.offset, it->second, bytes, source.phase, pc);
}

void mbarrier_complete_tx(Cta& cta, u32 offset, Mbarrier& bar, u32 bytes, u32 issued_phase, i32 pc) {
    if (bar.phase == issued_phase && bar.in_flight) bar.in_flight -= 1;
    bar.tx -= bytes;
    if (bar.tx < -kMaxTx)
        throw Fault("mbarrier-tx-range",
                    format("the tx-count of the mbarrier at shared 0x%x fell below -(2^20-1)", offset));
    settle_phase(cta, offset, bar, pc);
}

Handler bind_mbarrier(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::mbar_init: return init;
        case Op::mbar_inval: return inval;
        case Op::mbar_arrive: return arrive;
        case Op::mbar_expect_tx: return expect_tx;
        case Op::mbar_wait: return wait;
        case Op::mbar_complete_tx: return complete_tx;
        case Op::mbar_pending: return pending_count;
        default: return nullptr;
    }
}

}  // namespace ptxm
