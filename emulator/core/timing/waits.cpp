// What warps wait for: mbarriers, named barriers, those of clusters.
#include "timing/replayer.hpp"

namespace ptxm::timing {

void Replayer::block(Runner& w, Cause cause, u32 place) {
    w.blocked = true;
    w.blocked_at = w.time;
    w.blocked_on = cause;
    w.blocked_place = place;
}

void Replayer::wake(Runner& w, double at, i64 by) {
    const double to = std::max(at, w.blocked_at);
    w.blocked = false;
    note(w, w.recording->steps[w.next - 1].pc, w.blocked_at, to, w.blocked_on, by, w.blocked_place);
    w.time = to;
    turns_.push({w.time, w.id});
}

void Replayer::wake_all(Barrier& b, double latency) {
    const Barrier::Phase last = b.phases.back();
    for (u32 id : std::exchange(b.waiting, {})) wake(warps_[id], last.at + latency, last.by);
}

void Replayer::settle(Barrier& b, double latency) {
    if (b.pending > 0 || b.tx != 0) return;
    b.pending += b.expected;
    b.phases.push_back({b.latest, b.by});
    wake_all(b, latency);
}

Barrier& Replayer::mbarrier(Runner& w, const Deed& d) {
    return teams_[ctas_[w.cta].cluster].mbarriers[u32{d.rank} << 24 | d.a];
}

// The warp goes on at the end of a phase, or waits for it.
bool Replayer::pass(Runner& w, Barrier& b, u32 phases, Cause cause, double latency, u32 place) {
    if (b.phases.size() < phases) {
        b.waiting.push_back(w.id);
        block(w, cause, place);
        return false;
    }
    const Barrier::Phase none{0, kNobody}, last = phases ? b.phases[phases - 1] : none;
    const double to = std::max(w.time, last.at + latency);
    note(w, w.recording->steps[w.next - 1].pc, w.time, to, cause, last.by, place);
    w.time = to;
    return true;
}

bool Replayer::hold(Runner& w, u32 pc, double until, Cause cause, i64 by) {
    if (until > w.time) {
        note(w, pc, w.time, until, cause, by, 0);
        w.time = until;
    }
    w.time += 1;
    return true;
}

bool Replayer::synchronise(Runner& w, const Step& step) {
    w.time += 1;
    if (!step.deed) return true;
    bool goes_on = true;
    const i64 self = ~static_cast<i64>(w.id);
    each_deed(w, step, [&](const Deed& d) {
        Cta& cta = ctas_[w.cta];
        Team& team = teams_[cta.cluster];
        switch (d.what) {
            case Did::mbarrier_init: mbarrier(w, d).expected = mbarrier(w, d).pending = d.b; break;
            case Did::mbarrier_expect: {
                Barrier& b = mbarrier(w, d);
                b.tx += static_cast<i32>(d.b);
                b.contribute(w.time, self);
                if (!d.more) settle(b, t_.mbarrier_wake);
                break;
            }
            case Did::copy_arrive:
            case Did::mbarrier_arrive: {
                Barrier& b = mbarrier(w, d);
                b.pending -= d.b;
                const double at = d.what == Did::copy_arrive ? std::max(w.time, w.copies) : w.time;
                b.contribute(at + (d.rank == cta.rank ? t_.mbarrier_arrive : t_.cluster_latency), self);
                settle(b, t_.mbarrier_wake);
                break;
            }
            case Did::mbarrier_wait:
                goes_on = pass(w, mbarrier(w, d), d.b, Cause::mbarrier, t_.mbarrier_wake, d.a);
                break;
            case Did::barrier: goes_on = meet(w, cta, d, self); break;
            case Did::cluster_arrive: {
                Barrier& b = team.barrier;
                b.tx += d.b;
                b.contribute(w.time, self);
                if (b.tx >= team.threads) {
                    b.tx -= team.threads;
                    b.phases.push_back({b.latest, b.by});
                    wake_all(b, t_.cluster_wake);
                }
                break;
            }
            case Did::cluster_wait: goes_on = pass(w, team.barrier, d.b, Cause::cluster, t_.cluster_wake, 0); break;
            default: break;
        }
    });
    return goes_on;
}

bool Replayer::meet(Runner& w, Cta& cta, const Deed& d, i64 self) {
    Barrier& b = cta.named[d.a % 16];
    b.tx += 32;
    b.contribute(w.time, self);
    const u32 phase = static_cast<u32>(b.phases.size()) + 1;
    if (b.tx >= (d.b ? d.b : cta.threads)) {
        b.tx = 0;
        b.phases.push_back({b.latest, b.by});
        wake_all(b, t_.barrier_wake);
    }
    return d.rank || pass(w, b, phase, Cause::barrier, t_.barrier_wake, d.a);
}

}  // namespace ptxm::timing
