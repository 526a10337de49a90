// The run of a launch to its end.
#include <chrono>
#include <numeric>
#include <utility>

#include "machine/grid/grid.hpp"
#include "machine/grid/grid_tree.hpp"
#include "machine/grid/threads.hpp"
#include "machine/machine.hpp"
#include "timing/recorder.hpp"

namespace ptxm {
namespace {

// Where fewer are left, what the launch before did is forgotten: a cluster needs a number of its own.
constexpr u32 kMostNumbers = 0x8000;

}  // namespace

void Machine::begin(bool of_host) {
    stats = Stats{};
    failed = false;
    tensor_columns = 0;
    random.seed(seed);
    search.begin(random);
    interleaving = schedule == Schedule::pct ? std::make_unique<Interleaving>() : nullptr;
    if (tree->size()) at_start_ = tree->at(0).complete;  // of the launch before this one, whatever its last grid knew
    dependent_ = launch->programmatic && triggered_ && number_ < kMostNumbers;
    // Work of the host comes behind all that is not beside it, which need not be over for other streams.
    const bool keeps = dependent_ || !launch->beside.empty() || (of_host && number_ > 0);
    if (keeps && number_ < kMostNumbers) {
        in_flight_.push_back({number_, launched_, launched_name_, std::move(complete_), std::exchange(below_, {})});
        if (dependent_ && triggered_late_) at_start_ = in_flight_.back().complete;
        global.keep_written();
        begin_beside();
    } else {
        forget_launches();
    }
    complete_ = at_start_;
    launched_ = launch->number;
    launched_name_ = launch->name;
    triggered_ = waited_ = triggered_late_ = false;
}

// Nothing is in flight.
void Machine::forget_launches() {
    in_flight_.clear();
    at_start_.clear();
    complete_.clear();
    below_.clear();
    number_ = 0;
    global.forget_shadows();
    sync.clear();
    map_fences.clear();
}

bool Machine::runs_below() const { return tree && tree->running(); }

// A grid of the tree, behind another.
void Machine::begin_below() {
    const DeviceGrid& grid = tree->at(next_grid_);
    std::vector<u32> complete = tree->complete_before(next_grid_);
    const bool alone = !triggered_ && !tree->at(0).launch.overlaps && complete.size() == in_flight_.size() + 1;
    if (alone || number_ >= kMostNumbers) {
        forget_launches();
        tree->forget();
    } else {
        in_flight_.push_back({number_, launched_, launched_name_, {}});
        below_.push_back(static_cast<u32>(in_flight_.size()));
        global.keep_written();
        at_start_ = std::move(complete);
    }
    tree->start(next_grid_, *program, static_cast<u32>(in_flight_.size()) + 1);
    tree->at(next_grid_).complete = at_start_;
    launch = &grid.launch;
    dependent_ = false;
}

// The next launch begins when all CTAs have triggered, so behind what one of them has waited for before it did.
void Machine::trigger(Warp& w) {
    if (runs_below()) return;  // a grid that a kernel has launched has no dependents
    triggered_ = true;
    triggered_late_ |= !w.cta->triggered && waited_ && w.clocks.knows_launch(static_cast<u32>(in_flight_.size()));
    w.cta->triggered = true;
}

// A dependent launch may begin as soon as the one before it may; any other, when all are complete that it is not
// beside.
void Machine::begin_beside() {
    const auto gone = [&](u32 n) { return is_beside(in_flight_[n - 1].number); };
    if (!dependent_) {
        at_start_.resize(in_flight_.size());
        std::iota(at_start_.begin(), at_start_.end(), 1u);
    }
    std::erase_if(at_start_, gone);
}

const std::vector<u32>& Machine::wait_for_launches() {
    if (runs_below()) return at_start_;
    if (dependent_ && !waited_ && !in_flight_.empty()) {
        for (const auto* before : {&in_flight_.back().complete, &in_flight_.back().below})
            complete_.insert(complete_.end(), before->begin(), before->end());
        complete_.push_back(static_cast<u32>(in_flight_.size()));
        waited_ = true;
    }
    return complete_;
}

void Machine::run(const Program& p, const Launch& l) {
    program = &p;
    launch = &l;
    begin();
    tree->begin(l, p, at_start_);
    tree->at(0).in_flight = static_cast<u32>(in_flight_.size()) + 1;
    run_one();
    launch = &tree->at(0).launch;
}

u64 Machine::next_grid() {
    const std::optional<u32> next = failed ? std::nullopt : tree->next(schedule, random);
    next_grid_ = next.value_or(0);
    return next ? tree->at(*next).kernel : 0;
}

void Machine::run_next(const Program& p) {
    program = &p;
    begin_below();
    run_one();
}

void Machine::run_one() {
    launch_findings.clear();
    told_.clear();
    findings = nullptr;
    running = nullptr;
    executed.assign(watched ? program->insts.size() : 0, 0);
    recorder = recorded.empty() ? nullptr
                                : std::make_shared<Recorder>(std::set(recorded.begin(), recorded.end()),
                                                             std::set(glimpsed.begin(), glimpsed.end()));
    const auto start = std::chrono::steady_clock::now();
    if (recorder || !run_side_by_side(*this)) {
        GridCursor grid(*launch);
        cursor = &grid;
        run_grid(*this);
        cursor = nullptr;
    }
    running = nullptr;
    findings = nullptr;
    collect_findings();
    tree->end(global);
    stats.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace ptxm
