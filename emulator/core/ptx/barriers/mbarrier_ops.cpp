// The mbarrier instructions (PTX ISA 9.7.13.15).
#include <algorithm>
#include <utility>

#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/machine.hpp"
#include "machine/names.hpp"
#include "machine/observer.hpp"
#include "order/conflicts/conflicts.hpp"
#include "ptx/barriers/mbarrier.hpp"

namespace ptxm {
namespace {

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

u64 lane_address(Warp& w, i32 unit, u32 width, u32 lane, i64 offset) {
    const u64 base = width == 64 ? w.reg<u64>(unit)[lane] : w.reg<u32>(unit)[lane];
    return base + static_cast<u64>(offset);
}

// The mbarriers that the lanes of an instruction name: mostly one, looked up once.
class LaneTargets {
public:
    LaneTargets(Warp& w, const char* what, u32 clock = 0) : w_(w), what_(what), clock_(clock) {}
    const MbarrierTarget& at(u64 address) {
        if (!known_ || address != address_) target_ = mbarrier_of(w_, address, what_, clock_);
        address_ = address;
        known_ = target_.cta == w_.cta;  // of others', every access is noted
        return target_;
    }

private:
    Warp& w_;
    const char* what_;
    const u32 clock_;
    bool known_ = false;
    u64 address_ = 0;
    MbarrierTarget target_{};
};

// The ISA asks for mbarrier.inval first (9.7.13.15.9). Released kernels initialise a barrier twice before they use it,
// or anew between two uses; that is harmless while nothing waits for the phase in progress or counts towards it.
void reinitialise(Warp& w, Cta& cta, u32 offset) {
    auto it = cta.mbarriers.find(offset);
    if (it == cta.mbarriers.end()) return;
    const Mbarrier& old = it->second;
    if (old.in_flight || old.tx || old.pending != old.expected)
        throw Fault("mbarrier-reinitialised-in-use",
                    format("mbarrier.init at %s over an mbarrier in the middle of phase %u",
                           shared_place(cta, offset).c_str(), old.phase));
    machine_of(w).report_strict(&w, "mbarrier-reinitialised",
                                format("mbarrier.init at %s over a live mbarrier: no mbarrier.inval in between",
                                       shared_place(cta, offset).c_str()),
                                w.pc(), old.init_pc);
    cta.mbarriers.erase(it);
    cta.live_mbarriers.remove(offset);
}

// The object's memory is written as by any store: what else uses that memory is ordered before or after it.
void touch_object(Warp& w, const SharedRef& at) {
    touch_shared(*at.cta, w, at.offset, LiveMbarriers::kBytes,
                 Accessor{w.clocks.self, w.clocks.epoch(), static_cast<u32>(w.pc()), true}, false);
}

// Whoever has used the mbarrier and is not ordered before its end may use it afterwards. Triton's pairs of CTAs
// invalidate, before their last cluster barrier, mbarriers on which the peer still arrives and nobody waits.
void check_uses(Warp& w, const MbarrierTarget& t) {
    Machine& m = machine_of(w);
    const Cluster& cluster = *t.cta->cluster;
    if (!m.checks) return;
    for (const Use& u : t.bar->uses) {
        if (u.agent == w.clocks.self || w.clocks.known_shared(u.agent) >= u.clock) continue;
        if (m.profile == Profile::lenient && cluster.agents[u.agent].cta != t.cta->rank) continue;
        m.report(&w, "mbarrier-inval-race",
                 format("mbarrier.inval at %s, which %s uses with no synchronisation in between",
                        shared_place(*t.cta, t.offset).c_str(), describe_agent(cluster, u.agent).c_str()),
                 w.pc(), static_cast<i32>(u.pc));
    }
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
            throw Fault("misaligned", format("mbarrier.init at %s: an mbarrier is 8-byte aligned",
                                             shared_place(*ref.cta, ref.offset).c_str()));
        const u32 count = w.reg<u32>(o[1])[l];
        if (count == 0 || count >= 1u << 20)
            throw Fault("mbarrier-count", format("mbarrier.init with count %u; valid is 1..2^20-1", count));
        reinitialise(w, *ref.cta, ref.offset);
        std::erase(ref.cta->invalidated, ref.offset);
        w.clocks.note_access(mask);
        touch_object(w, ref);
        Mbarrier bar;
        bar.expected = bar.pending = count;
        bar.init_pc = w.pc();
        bar.init = Accessor{w.clocks.self, w.clocks.epoch(), static_cast<u32>(w.pc()), true}.access();
        bar.phases = w.cta->cluster->new_agent({AgentKind::phase, static_cast<u16>(ref.cta->rank), 0, ref.offset});
        const Mbarrier& made = ref.cta->mbarriers.emplace(ref.offset, std::move(bar)).first->second;
        show_barrier(BarrierEvent::init, *ref.cta, ref.offset, made, &w, w.pc(), count);
        ref.cta->live_mbarriers.add(ref.offset);
    }
    return Flow::next;
}

Flow inval(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const u64 address = lane_address(w, o[0], i.width_src, l, i.immediate);
        const MbarrierTarget place = place_of_mbarrier(w, address, "mbarrier.inval");
        if (!place.bar) {  // a mistake, but nothing that comes after it is lost
            machine_of(w).report(&w, "mbarrier-inval-uninitialised",
                                 format("mbarrier.inval at %s, where no mbarrier has been initialised",
                                        shared_place(*place.cta, place.offset).c_str()),
                                 w.pc());
            continue;
        }
        MbarrierTarget t = mbarrier_of(w, address, "mbarrier.inval");
        check_local(w, t.cta, "mbarrier.inval");
        check_mbarrier_visible(w, *t.bar, false);
        if (t.bar->in_flight)
            machine_of(w).report(
                &w, "mbarrier-inval-in-flight",
                format("mbarrier.inval at %s with bulk copies in flight", shared_place(*t.cta, t.offset).c_str()),
                w.pc(), t.bar->init_pc);
        check_uses(w, t);
        if (machine_of(w).profile == Profile::lenient && t.cta->cluster->ctas.size() > 1) {
            t.cta->invalidated.push_back(t.offset);
            t.cta->cluster->invalidated = true;
        }
        show_barrier(BarrierEvent::invalidate, *t.cta, t.offset, *t.bar, &w, w.pc(), 0);
        t.cta->mbarriers.erase(t.offset);
        t.cta->live_mbarriers.remove(t.offset);
        w.clocks.note_access(mask);
        touch_object(w, {t.cta, t.offset});
    }
    return Flow::next;
}

// The lanes of one arrive have no order: which of them opened the next phase is chance.
void report_split_arrival(Warp& w, const MbarrierTarget& t, u32 lanes, u32 missing) {
    const u32 count = t.bar->expected, before = count > missing ? count - missing : 0;
    const std::string why = before ? format("%u of its %u arrivals came from elsewhere before, so that %u were missing",
                                            before, count, missing)
                                   : format("its count of %u is not the number of threads that arrive", count);
    machine_of(w).report(&w, "mbarrier-split-arrival",
                         format("the %u lanes of one mbarrier.arrive complete a phase of the mbarrier at %s and arrive "
                                "for the next one: %s",
                                lanes, shared_place(*t.cta, t.offset).c_str(), why.c_str()),
                         w.pc(), t.bar->init_pc);
}

void check_arrival(const Inst& i, const MbarrierTarget& t, u32 count) {
    if (count == 0)
        throw Fault("mbarrier-count",
                    format("an arrival of count 0 at %s; valid is 1..2^20-1", shared_place(*t.cta, t.offset).c_str()));
    if ((i.mods & kMbarNoComplete) && count >= t.bar->pending)
        throw Fault("mbarrier-no-complete",
                    format("%u arrivals with .noComplete complete the phase of the mbarrier at %s, which expects %u",
                           count, shared_place(*t.cta, t.offset).c_str(), t.bar->pending));
}

// Lenient: an arrival at another CTA's mbarrier that check_uses let it invalidate.
bool comes_too_late(Warp& w, u64 address) {
    if (!w.cta->cluster->invalidated) return false;
    const SharedRef ref = resolve_shared(w, static_cast<u32>(address), 8, "mbarrier.arrive");
    const std::vector<u32>& gone = ref.cta->invalidated;
    return ref.cta != w.cta && std::find(gone.begin(), gone.end(), ref.offset) != gone.end();
}

void expect(Warp& w, const MbarrierTarget& t, u32 bytes) {
    expect_bytes(t, bytes);
    show_barrier(BarrierEvent::expect, *t.cta, t.offset, *t.bar, &w, w.pc(), bytes);
}

// What an arrival at another CTA's mbarrier hands on (strict profile), apart from those of the barrier's own CTA: a
// wait at .cta scope leaves it out. An arrival at .cta scope does itself: it hands on what a relaxed one does.
void release_outside(Warp& w, Mbarrier& bar, const Inst& i, const Message& message) {
    if (!bar.outside) bar.outside = std::make_unique<ReleasedOutside>();
    Message& to = bar.outside->arriving;
    if ((i.mods & kMbarRelaxed) || !(i.mods & kCtaScope)) return to.join(message);
    Message narrow;
    if (w.fences.has_fenced) narrow = w.fences.fenced_beyond_cta;
    w.clocks.release_tc(narrow);
    auto beyond = std::make_shared<VectorClock>(message.generic);
    if (message.beyond) beyond->join(*message.beyond);
    narrow.beyond = std::move(beyond);
    to.join(narrow);
}

// Operands: [state], address, [tx bytes | count]. Every active lane arrives. arrive_drop also lowers the count of later
// phases (PTX ISA 9.7.13.15.14).
Flow arrive(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const i32* s = o + i.n_dst;
    const bool relaxed = i.mods & kMbarRelaxed;
    const u32 clock = w.clocks.epoch();
    Message& message = machine_of(w).released;
    if (!relaxed)
        w.clocks.release(message, w.acting(mask));
    else if (w.fences.has_fenced)
        message = w.fences.fenced;  // of a relaxed arrival: what an earlier fence releases
    else
        message.clear();
    if (relaxed) w.clocks.release_tc(message);
    w.cta->cluster->now = std::max(w.cta->cluster->now, w.time);
    LaneTargets targets(w, "mbarrier.arrive", clock);
    const Mbarrier *first = nullptr, *last = nullptr;
    u32 first_phase = 0, first_missing = 0, last_phase = 0;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const u64 address = lane_address(w, s[0], i.width_src, l, i.immediate);
        if (comes_too_late(w, address)) continue;
        const MbarrierTarget& t = targets.at(address);
        if (!first) {
            first = t.bar;
            first_phase = t.bar->phase;
            first_missing = t.bar->pending;
        } else if (t.bar == first && t.bar->phase != first_phase) {
            report_split_arrival(w, t, static_cast<u32>(std::popcount(mask)), first_missing);
        }
        check_mbarrier_visible(w, *t.bar, false);
        const bool brought = t.bar == last && t.bar->phase == last_phase;  // by the lane before
        last = t.bar;
        last_phase = t.bar->phase;
        if (i.n_dst && o[0] >= 0) {
            if (t.cta != w.cta)
                throw Fault("mbarrier-remote-state",
                            format("mbarrier.arrive on the mbarrier of CTA rank %u returns no state", t.cta->rank));
            w.reg<u64>(o[0])[l] = state_token(*t.bar);
        }
        u32 count = 1;
        if (i.mods & kMbarExpectTx)
            expect(w, t, w.reg<u32>(s[1])[l]);
        else if (i.n_src > 1)
            count = w.reg<u32>(s[1])[l];
        check_arrival(i, t, count);
        if (i.mods & kMbarDrop) t.bar->expected -= std::min(count, t.bar->expected);
        const bool outside = t.cta != w.cta && machine_of(w).profile == Profile::strict;
        if (outside && !brought) release_outside(w, *t.bar, i, message);
        mbarrier_arrive(&w, *t.cta, t.offset, *t.bar, count, brought || outside ? nullptr : &message);
    }
    return Flow::next;
}

Flow expect_tx(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        MbarrierTarget t = mbarrier_of(w, lane_address(w, o[0], i.width_src, l, i.immediate), "mbarrier.expect_tx");
        check_mbarrier_visible(w, *t.bar, false);
        expect(w, t, w.reg<u32>(o[1])[l]);
        settle_phase(*t.cta, t.offset, *t.bar, w.pc());  // of bytes that came before they were expected
    }
    return Flow::next;
}

// complete-tx without a copy: what an asynchronous operation would signal (PTX ISA 9.7.13.15.12).
Flow complete_tx(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        MbarrierTarget t = mbarrier_of(w, lane_address(w, o[0], i.width_src, l, i.immediate), "mbarrier.complete_tx");
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
// synchronisation, or the one after it, by parity. (Attention Gym's KDA skips a wait, and knows of the phase since it
// has met those who arrived in it.) Where another has completed since, the wait has missed its phase:
// it takes a later one for it, or blocks. A waiter that the barrier cannot overtake is never seen here.
void check_phase_lag(Warp& w, const Inst& i, u32 lane, const MbarrierTarget& t) {
    const Mbarrier& bar = *t.bar;
    const bool by_parity = i.mods & kMbarParity;
    const u64 asked = by_parity ? w.reg<u32>(w.ops(i)[2])[lane] & 1 : token_phase(w.reg<u64>(w.ops(i)[2])[lane]);
    const auto by = [&](i64 known) { return (known & 1) == static_cast<i64>(asked) ? known : known - 1; };
    const i64 meant = by_parity ? by(w.clocks.known_shared(bar.phases)) : static_cast<i64>(asked);
    if (bar.phase <= meant + 1) return;
    if (by_parity && bar.phase <= by(known_phases(w, bar)) + 1) return;
    machine_of(w).report(&w, "mbarrier-phase-aliasing",
                         format("warp %u waits for phase %lld of the mbarrier at %s, which has completed %u phases: %s",
                                w.index, (long long)meant, shared_place(*t.cta, t.offset).c_str(), bar.phase,
                                by_parity ? "nothing keeps it from overtaking this waiter"
                                          : "the token that it waits with is of an arrival in that phase"),
                         w.pc(), bar.init_pc);
}

// The lanes that wait for the same phase of the same mbarrier as the first of `mask`.
u32 same_question(Warp& w, const Inst& i, u32 mask) {
    const u32 first = static_cast<u32>(std::countr_zero(mask));
    u32 same = 0;
    const auto compare = [&](const auto* at, const auto* phase) {
        for (u32 l = 0; l < kLanes; ++l) same |= static_cast<u32>(at[l] == at[first] && phase[l] == phase[first]) << l;
    };
    const i32 *o = w.ops(i), at = o[1], phase = o[2];
    const bool wide = i.width_src == 64, parity = i.mods & kMbarParity;
    if (wide && parity) compare(w.reg<u64>(at), w.reg<u32>(phase));
    if (wide && !parity) compare(w.reg<u64>(at), w.reg<u64>(phase));
    if (!wide && parity) compare(w.reg<u32>(at), w.reg<u32>(phase));
    if (!wide && !parity) compare(w.reg<u32>(at), w.reg<u64>(phase));
    return same & mask;
}

u32 asked_parity(Warp& w, const Inst& i, u32 lane) {
    const i32 unit = w.ops(i)[2];
    return (i.mods & kMbarParity ? w.reg<u32>(unit)[lane] : token_phase(w.reg<u64>(unit)[lane])) & 1;
}

// Under `spurious`: whether a try_wait fails without a look at its barrier, which a try a moment earlier, or a time
// limit of nothing, would have done as well. Who tries again is answered after a few.
bool fails_spuriously(Warp& w, const Inst& i) {
    constexpr u8 kMostRefusals = 3;
    if (machine_of(w).schedule != Schedule::spurious || !(i.mods & kMbarBlocking)) return false;
    u8& refused = w.fragment().refused;
    const bool fails = refused < kMostRefusals && w.cta->cluster->random() % 2 == 0;
    refused = fails ? refused + 1 : 0;
    return fails;
}

WaitOrder order_of(const Inst& i) { return {(i.mods & kMbarRelaxed) != 0, (i.mods & kCtaScope) != 0}; }

// test_wait and try_wait: operands p, address, parity or state. A failed try_wait suspends the fragment until the phase
// completes, which is one of the outcomes the ISA allows; lanes that wait for different things poll. Another is that
// its time runs out: schedules that draw do so half of the time, for kernels that do not try again, and where
// nothing else can go on it must (time_out_waits).
Flow wait(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    // Suspended until its phase completed: true even if the barrier has moved on since.
    if (w.fragment().wait_over) {
        w.fragment().wait_over = false;
        const u32 lane = static_cast<u32>(std::countr_zero(mask));
        const MbarrierTarget t = mbarrier_of(w, lane_address(w, o[1], i.width_src, lane, i.immediate), "mbarrier wait");
        check_phase_lag(w, i, lane, t);
        show_barrier(BarrierEvent::pass, *t.cta, t.offset, *t.bar, &w, w.pc(), asked_parity(w, i, lane));
        w.pred(o[0]) |= mask;
        return Flow::next;
    }
    if (fails_spuriously(w, i)) {
        machine_of(w).stats.barrier_waits += 1;
        w.spun = true;
        w.pred(o[0]) &= ~mask;
        return Flow::next;
    }
    u32 done = 0;
    u64 address = 0, blocked_on = 0;
    bool same = true;
    LaneTargets targets(w, "mbarrier wait");
    const Mbarrier* observed = nullptr;
    const u32 alike = same_question(w, i, mask), first = alike & (0u - alike);
    const u64 told = machine_of(w).findings->told();
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        // Those who ask what the first has asked get its answer, unless there is something to count.
        if ((alike & ~first) >> l & 1 && machine_of(w).findings->told() == told) {
            done |= done & first ? 1u << l : 0;
            continue;
        }
        address = lane_address(w, o[1], i.width_src, l, i.immediate);
        const MbarrierTarget& t = targets.at(address);
        check_local(w, t.cta, "a wait");
        check_mbarrier_visible(w, *t.bar, false);
        check_phase_lag(w, i, l, t);
        const bool complete = i.mods & kMbarParity ? (t.bar->phase & 1) != (w.reg<u32>(o[2])[l] & 1)
                                                   : t.bar->phase != token_phase(w.reg<u64>(o[2])[l]);
        if (complete) {
            // The first lane learns for those who ask the same.
            const u32 asking = alike >> l & 1 ? alike : 1u << l;
            if (observed != t.bar || w.clocks.by_lane) observe_phase(w, *t.bar, order_of(i), asking);
            observed = t.bar;
            done |= 1u << l;
            show_barrier(BarrierEvent::pass, *t.cta, t.offset, *t.bar, &w, w.pc(), asked_parity(w, i, l));
        } else {
            show_barrier(BarrierEvent::wait, *t.cta, t.offset, *t.bar, &w, w.pc(), asked_parity(w, i, l));
            const u64 canonical = t.cta->shared_address(t.offset);
            same = same && (blocked_on == 0 || blocked_on == canonical);
            blocked_on = canonical;
        }
    }
    Machine& m = machine_of(w);
    m.stats.barrier_waits += 1;
    const bool times_out = std::exchange(w.fragment().wait_timed_out, false) ||
                           (draws(m.schedule) && done != mask && w.cta->cluster->random() % 2 == 0);
    if (done != mask && done == 0 && same && (i.mods & kMbarBlocking) && !times_out) {
        Fragment& f = w.fragment();
        f.wait = Wait::mbarrier;
        f.wait_mbar = static_cast<u32>(blocked_on);
        f.wait_relaxed = order_of(i).relaxed;
        f.wait_narrow = order_of(i).narrow;
        f.wait_parity = w.reg<u32>(o[2])[std::countr_zero(mask)];
        return Flow::stay;
    }
    if (done != mask) w.spun = true;
    w.pred(o[0]) = (w.pred(o[0]) & ~mask) | done;
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_mbarrier(X)                                                                           \
    X(mbar_init, barrier, mbarrier, "mbarrier.init[.shared=|.shared::cta=].b64 [a:shared], count:u32") \
    X(mbar_inval, barrier, mbarrier, "mbarrier.inval[.shared=|.shared::cta=].b64 [a:shared]")          \
    X(mbar_arrive, barrier, mbarrier)                                                                  \
    X(mbar_expect_tx, barrier, mbarrier,                                                               \
      "mbarrier.expect_tx[.relaxed=][.cta=|.cluster=]"                                                 \
      "[.shared=|.shared::cta=|.shared::cluster=].b64 [a:shared], bytes:u32")                          \
    X(mbar_wait, barrier, mbarrier)                                                                    \
    X(mbar_complete_tx, barrier, mbarrier,                                                             \
      "mbarrier.complete_tx[.relaxed=][.cta=|.cluster=]"                                               \
      "[.shared=|.shared::cta=|.shared::cluster=].b64 [a:shared], bytes:u32")                          \
    X(mbar_pending, barrier, mbarrier, "mbarrier.pending_count.b64 d:b32, state")
// clang-format on

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
