// The run of a launch to its end.
#include <chrono>

#include "machine/grid.hpp"
#include "machine/machine.hpp"
#include "machine/threads.hpp"
#include "timing/recorder.hpp"

namespace ptxm {

void Machine::begin() {
    launch_findings.clear();
    told_.clear();
    stats = Stats{};
    findings = nullptr;
    running = nullptr;
    number_ = 0;
    random.seed(seed);
    global.forget_shadows();
    sync.clear();
    map_fences.clear();
}

void Machine::run(const Program& p, const Launch& l) {
    program = &p;
    launch = &l;
    executed.assign(watched ? p.insts.size() : 0, 0);
    begin();
    recorder = recorded.empty() ? nullptr : std::make_shared<Recorder>(std::set(recorded.begin(), recorded.end()));
    const auto start = std::chrono::steady_clock::now();
    if (recorder || !run_side_by_side(*this)) {
        GridCursor grid(l);
        cursor = &grid;
        run_grid(*this);
        cursor = nullptr;
    }
    running = nullptr;
    findings = nullptr;
    collect_findings();
    stats.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace ptxm
