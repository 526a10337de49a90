#include "machine/grid/grid.hpp"

#include <algorithm>
#include <utility>

#include "machine/grid/cluster_start.hpp"
#include "machine/machine.hpp"
#include "machine/observer.hpp"
#include "machine/schedule/deadlock.hpp"
#include "machine/schedule/schedule.hpp"
#include "timing/recorder.hpp"

namespace ptxm {

bool GridCursor::take(std::array<u32, 3>& first) {
    if (exhausted_) return false;
    first = next_;
    for (u32 d = 0; d < 3; ++d) {
        next_[d] += launch_->cluster[d];
        if (next_[d] < launch_->grid[d]) return true;
        next_[d] = 0;
    }
    exhausted_ = true;
    return true;
}

namespace {

// Warp instructions of polling with no progress anywhere before it counts as livelock.
constexpr u64 kLivelock = 20'000'000;
// The same in turns of every cluster, where there are many: what all of them have released comes with every poll, and
// the instructions alone would take minutes.
constexpr u64 kLivelockTurns = 1000, kManyClusters = 32;
// Warp instructions between two looks at whether a cluster that is only glimpsed has read enough.
constexpr u64 kGlimpse = 256;
// Under schedules that draw: clusters that take turns, and turns in a row that they may spend polling before others
// start.
constexpr u32 kExploredClusters = 4, kExploredTurns = 8;
// And that stand still, at most, until all CTAs have let dependent launches begin.
constexpr u32 kMostHeld = 64;
constexpr u64 kMostBesideHeld = 1 << 16;  // instructions of warps

using Resident = std::vector<std::unique_ptr<Cluster>>;

class Grid {
public:
    explicit Grid(Machine& m) : m_(m), limit_(resident_limit(m.multiprocessors, *m.program, *m.launch)) {}

    void run() {
        u64 progress =
            m_.stats.warp_instructions;  // instruction count at the end of the last turn that was not only polling
        while (fill()) {
            if (m_.overlap.undone() && !m_.overlap.left(m_.stats.warp_instructions))
                m_.overlap.redo(m_.global.memory());
            const std::size_t turn = pick();
            Cluster& cluster = *resident_[turn];
            const u64 before = cluster.progress;
            m_.running = nullptr;
            m_.search.clusters = resident_.size();
            const bool glimpsed = only_glimpsed(cluster);
            Progress ended = Progress::done;
            if (!glimpsed || !m_.recorder->has_enough(cluster)) {
                ended = run_cluster(cluster, glimpsed ? kGlimpse : budget());
                if (glimpsed && m_.recorder->has_enough(cluster)) ended = Progress::done;
            }
            if (m_.schedule == Schedule::pct) let_go_on(cluster, ended);
            switch (ended) {
                case Progress::failed:
                    m_.failed = true;
                    report_deadlock({&resident_[turn], 1}, "deadlock");
                    if (Observer* const o = Observer::of(m_)) o->stuck(cluster);
                    return;
                case Progress::done:
                    progress = m_.stats.warp_instructions;
                    m_.running = nullptr;
                    m_.retire(cluster);
                    resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(turn));
                    idle_ = 0;
                    turn_ = turn;
                    continue;
                case Progress::polling:
                case Progress::yielded:
                    if (cluster.progress > before) {
                        progress = m_.stats.warp_instructions;
                        idle_ = 0;
                    } else {
                        idle_ += 1;
                    }
                    break;
            }
            const bool idle = resident_.size() >= kManyClusters && idle_ > kLivelockTurns * resident_.size();
            if (idle || m_.stats.warp_instructions - progress > std::min(kLivelock, m_.max_instructions / 2)) {
                m_.failed = true;
                report_deadlock(resident_, "livelock");
                if (Observer* const o = Observer::of(m_)) o->stuck(cluster);
                return;
            }
            turn_ = turn + 1;
        }
    }

    // What clusters that a fault or a deadlock has stopped have to tell.
    void retire() {
        for (auto& cluster : resident_) m_.retire(*cluster);
    }

private:
    bool explores() const { return draws(m_.schedule); }
    // Short turns as often as long ones: what a few instructions of two clusters race for, and what many do.
    u64 budget() {
        const u64 most = drawn_budget();
        return m_.overlap.undone() ? std::min(most, m_.overlap.left(m_.stats.warp_instructions)) : most;
    }
    u64 drawn_budget() {
        const bool others = m_.schedule == Schedule::random || somebody_polls();
        if (!explores() || !others) return ~0ull;
        const u64 most = u64{1} << m_.random() % 13;
        return 1 + m_.random() % most;
    }

    bool only_glimpsed(const Cluster& cluster) const {
        return m_.only_recorded && !m_.recorder->records(cluster.ordinal);
    }

    bool somebody_polls() const {
        return std::ranges::any_of(resident_, [](const auto& cluster) { return cluster->yields; });
    }

    // Those that only poll come last, until another has gone on.
    void let_go_on(Cluster& cluster, Progress ended) {
        if (ended != Progress::polling)
            for (auto& other : resident_) other->yields = false;
        cluster.yields = ended == Progress::polling;
    }

    // It stands still, as all its CTAs have let dependents begin.
    bool held(const Cluster& cluster) const {
        return m_.holds_triggered &&
               std::ranges::all_of(cluster.ctas, [](const auto& cta) { return cta->triggered || !cta->live_warps; });
    }
    std::size_t held() const {
        if (!m_.holds_triggered) return 0;
        return static_cast<std::size_t>(std::ranges::count_if(resident_, [&](const auto& c) { return held(*c); }));
    }

    // Goes on with those that stand still: when nobody else is left, or when others may need them.
    void let_go_held(bool taken_all) {
        if (!m_.holds_triggered || resident_.empty()) return;
        const std::size_t waiting = held();
        if (!waiting) held_since_ = m_.stats.warp_instructions;
        // Whoever polls with a barrier in each round goes on all the time, and waits for them all the same.
        const bool all = waiting == resident_.size(), late = m_.stats.warp_instructions - held_since_ > kMostBesideHeld;
        const bool polled = late || idle_ > 2 * kExploredTurns * resident_.size();
        if (!all && !polled && resident_.size() < kMostHeld) return;
        m_.holds_triggered = false;
        if (!all || !taken_all) return;
        m_.overlap.redo(m_.global.memory());
        m_.overlap.begin_tail(m_.global.memory());
    }

    std::size_t pick() {
        if (m_.holds_triggered) {
            std::vector<std::size_t> others;
            for (std::size_t n = 0; n < resident_.size(); ++n)
                if (!held(*resident_[n])) others.push_back(n);
            if (m_.schedule != Schedule::pct) return others[m_.random() % others.size()];
            return *std::ranges::max_element(others, {}, [&](std::size_t n) { return rank(*resident_[n]); });
        }
        if (m_.schedule != Schedule::pct) return (explores() ? m_.random() : turn_) % resident_.size();
        const auto rank_of = [](const auto& cluster) { return rank(*cluster); };
        return static_cast<std::size_t>(std::ranges::max_element(resident_, {}, rank_of) - resident_.begin());
    }
    static std::pair<bool, i64> rank(const Cluster& cluster) { return {!cluster.yields, cluster.priority}; }

    void draw_priorities(Cluster& cluster) {
        cluster.priority = Search::high(m_.random);
        for (auto& cta : cluster.ctas)
            for (Warp& w : cta->warps) w.priority = Search::high(m_.random);
    }

    // Starts clusters while there are too few, or while those that are resident only poll. False when all are done.
    bool fill() {
        const u32 wanted = explores() ? std::min(limit_, kExploredClusters) : 1;
        const std::size_t patience = explores() ? kExploredTurns * resident_.size() : 0;
        bool taken_all = false;
        while (resident_.size() - held() < wanted || (idle_ > patience && resident_.size() < limit_)) {
            std::array<u32, 3> first;
            if (resident_.size() >= limit_) break;
            taken_all = !m_.cursor->take(first);
            if (taken_all) break;
            if (m_.only_recorded && !m_.recorder->wants(ordinal_of(*m_.launch, first))) continue;
            resident_.push_back(make_cluster(m_, first, m_.next_number(resident_)));
            if (m_.schedule == Schedule::pct) draw_priorities(*resident_.back());
            idle_ = 0;
            turn_ = resident_.size() - 1;  // the others only poll
            let_go_held(false);
        }
        let_go_held(taken_all);
        return !resident_.empty();
    }

    Machine& m_;
    const u32 limit_;
    Resident resident_;
    std::size_t turn_ = 0;
    std::size_t idle_ = 0;  // turns in a row without progress
    u64 held_since_ = 0;    // as many instructions had been executed when nobody stood still last
};

}  // namespace

u32 resident_limit(u32 multiprocessors, const Program& program, const Launch& l) {
    // What bounds the CTAs of a multiprocessor besides registers, which PTX does not fix: 228 KiB of shared memory, of
    // which each CTA costs one more, 64 warps, 32 CTAs.
    const u32 shared = kSharedStart + program.shared_static + l.dynamic_shared;
    const u32 warps = (l.block[0] * l.block[1] * l.block[2] + kLanes - 1) / kLanes;
    const u32 ctas = std::max(1u, std::min({(228u << 10) / shared, 64u / warps, 32u}));
    return std::max(1u, multiprocessors * ctas / (l.cluster[0] * l.cluster[1] * l.cluster[2]));
}

void run_grid(Machine& m) {
    Grid grid(m);
    try {
        grid.run();
    } catch (const Fault& fault) {
        m.failed = true;
        const Warp* w = m.running;
        m.report(w, fault.rule, fault.what(), w && w->live && !w->fragments.empty() ? w->fragments[w->current].pc : -1);
    }
    grid.retire();
}

}  // namespace ptxm
