// The run of a launch to its end.
#include <chrono>

#include "machine/grid.hpp"
#include "machine/machine.hpp"
#include "machine/threads.hpp"
#include "timing/recorder.hpp"

namespace ptxm {
namespace {

// Where fewer are left, what the launch before did is forgotten: a cluster needs a number of its own.
constexpr u32 kMostNumbers = 0x8000;

}  // namespace

void Machine::begin() {
    launch_findings.clear();
    told_.clear();
    stats = Stats{};
    findings = nullptr;
    running = nullptr;
    tensor_columns = 0;
    random.seed(seed);
    search.begin(random);
    interleaving = schedule == Schedule::pct ? std::make_unique<Interleaving>() : nullptr;
    if (launch->programmatic && triggered_ && number_ < kMostNumbers) {
        in_flight_.push_back({number_, std::move(waited_for_)});
        global.keep_written();
    } else {
        in_flight_.clear();
        number_ = 0;
        global.forget_shadows();
        sync.clear();
        map_fences.clear();
    }
    waited_for_.clear();
    triggered_ = false;
}

const std::vector<u32>& Machine::wait_for_launches() {
    if (waited_for_.empty() && !in_flight_.empty()) {
        waited_for_ = in_flight_.back().complete;
        waited_for_.push_back(static_cast<u32>(in_flight_.size()));
    }
    return waited_for_;
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
