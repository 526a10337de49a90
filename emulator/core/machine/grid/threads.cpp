#include "machine/grid/threads.hpp"

#include <exception>
#include <thread>

#include "machine/grid/cluster_start.hpp"
#include "machine/grid/grid.hpp"
#include "machine/machine.hpp"
#include "machine/observer.hpp"
#include "machine/schedule/schedule.hpp"
#include "memory/access_log.hpp"

namespace ptxm {
namespace {

constexpr u64 kTurn = 1'000'000;  // warp instructions between two looks at whether the others have given up

class SideBySide {
public:
    SideBySide(Machine& m, u32 threads)
        : main_(m), undo_(m.global.memory().indices()), cursor_(*m.launch), helpers_(threads) {
        for (Helper& h : helpers_) {
            h.log = std::make_unique<AccessLog>(undo_);
            h.machine = std::make_unique<Machine>(m, h.log.get());
        }
    }

    // False: memory is as it was, and the machine has nothing to tell.
    bool run() {
        {
            std::vector<std::jthread> threads;
            for (std::size_t n = 1; n < helpers_.size(); ++n) threads.emplace_back([&, n] { work(helpers_[n]); });
            work(helpers_[0]);
        }
        for (const Helper& h : helpers_) {
            if (!h.error) continue;
            undo_.restore();
            std::rethrow_exception(h.error);
        }
        if (!given_up_ && agree()) return true;
        undo_.restore();
        return false;
    }

private:
    struct Helper {
        std::unique_ptr<AccessLog> log;
        std::unique_ptr<Machine> machine;
        std::exception_ptr error;
    };

    void work(Helper& h) {
        try {
            while (!given_up_ && run_next(h)) {
            }
        } catch (const Fault&) {
            given_up_ = true;
        } catch (...) {
            h.error = std::current_exception();
            given_up_ = true;
        }
    }

    // False when there is no cluster left.
    bool run_next(Helper& h) {
        std::array<u32, 3> first;
        {
            const std::lock_guard lock(mutex_);
            if (!cursor_.take(first)) return false;
        }
        Machine& m = *h.machine;
        std::unique_ptr<Cluster> cluster = make_cluster(m, first, m.next_number());
        Progress progress = Progress::yielded;
        while (progress == Progress::yielded && !given_up_) progress = run_cluster(*cluster, kTurn);
        m.retire(*cluster);
        h.log->assign(cluster->ordinal);
        if (progress != Progress::done) given_up_ = true;
        return true;
    }

    bool agree() {
        std::vector<const AccessLog*> logs;
        for (const Helper& h : helpers_) logs.push_back(h.log.get());
        u64 instructions = 0;
        for (const Helper& h : helpers_) instructions += h.machine->stats.warp_instructions;
        if (instructions > main_.max_instructions) return false;
        if (!independent(logs)) {
            *main_.program->communicates = true;
            return false;
        }
        for (Helper& h : helpers_) {
            for (const AccessLog::Touched& t : h.log->writes()) main_.global.add_written(t.begin, t.end);
            main_.absorb(*h.machine);
            main_.trigger_as(*h.machine);
        }
        // What a launch that begins before this one is over may race with.
        if (main_.triggered()) {
            const u16 number = main_.next_number();
            for (const Helper& h : helpers_) {
                for (const AccessLog::Touched& t : h.log->reads()) main_.global.remember(t.begin, t.end, number, false);
                for (const AccessLog::Touched& t : h.log->writes()) main_.global.remember(t.begin, t.end, number, true);
            }
        }
        main_.stats.threads = static_cast<u32>(helpers_.size());
        return true;
    }

    Machine& main_;
    Undo undo_;
    std::mutex mutex_;
    GridCursor cursor_;
    std::atomic<bool> given_up_ = false;
    std::vector<Helper> helpers_;
};

}  // namespace

bool run_side_by_side(Machine& m) {
    const Launch& l = *m.launch;
    u64 clusters = 1;
    for (u32 d = 0; d < 3; ++d) clusters *= (l.grid[d] - (d == 2 ? l.first_plane : 0)) / l.cluster[d];
    const u32 threads = static_cast<u32>(std::min<u64>(m.threads, clusters));
    if (threads < 2 || m.schedule == Schedule::pct || m.holds_triggered || l.workspace || l.overlaps ||
        Observer::of(m) || m.follows_others() || *m.program->communicates)
        return false;
    return SideBySide(m, threads).run();
}

}  // namespace ptxm
