// The run of a launch to its end.
#include <chrono>
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
    // Of the launch before this one, whatever its last grid knew.
    if (tree->size() && !host_works_) at_start_ = tree->at(0).complete;
    primary_ = 0;
    dependent_ = false;
    if (number_ > 0 && number_ < kMostNumbers) {
        InFlight before{number_, launched_, std::move(launched_name_), std::move(launched_stream_), {}, {}};
        before.how = how_;
        before.of_host = host_works_;
        before.below = std::exchange(below_, {});
        if (how_.triggered) {  // a list of all before it, for each launch: kept where somebody asks
            before.at_start = std::move(at_start_);
            before.complete = std::move(complete_);
            before.beside = std::move(launched_beside_);
        }
        in_flight_.push_back(std::move(before));
        if (launch->programmatic) primary_ = find_primary();
        dependent_ = primary_ != 0;
    }
    // Work of the host comes behind all that is not beside it, which need not be over for other streams.
    const bool keeps = dependent_ || !launch->beside.empty() || of_host;
    if (keeps && number_ < kMostNumbers) {
        global.keep_written();
        begin_beside();
    } else {
        forget_launches();
    }
    complete_ = at_start_;
    launched_beside_ = launch->beside;
    launched_ = launch->number;
    launched_name_ = launch->name;
    launched_stream_ = launch->stream;
    host_works_ = of_host;
    waited_ = false;
    how_ = {};
    begin_overlap();
}

// The launch before this one may still be running: with what it wrote last undone.
void Machine::begin_overlap() {
    const bool overlaps = draws(schedule) && dependent_ && primary_ == in_flight_.size();
    if (overlaps && random() % 4) overlap.undo(global.memory(), random);
    if (!overlap.undone()) overlap.forget();
    const auto triggers = [](const Inst& i) { return static_cast<Op>(i.op) == Op::grid_trigger; };
    holds_triggered = draws(schedule) && !host_works_ && std::ranges::any_of(program->insts, triggers) && random() % 4;
}

u32 Machine::find_primary() const {
    for (u32 n = static_cast<u32>(in_flight_.size()); n; --n) {
        const InFlight& l = in_flight_[n - 1];
        if (launch->after ? l.number == launch->after : !l.of_host) return l.how.triggered ? n : 0;
    }
    return 0;
}

// Nothing is in flight.
void Machine::forget_launches() {
    in_flight_.clear();
    primary_ = 0;
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
    const bool alone = !how_.triggered && !tree->at(0).launch.overlaps && complete.size() == in_flight_.size() + 1;
    if (alone || number_ >= kMostNumbers) {
        forget_launches();
        tree->forget();
    } else {
        in_flight_.push_back({number_, launched_, launched_name_, launched_stream_, {}, {}});
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
bool Machine::trigger(Warp& w) {
    if (runs_below()) return false;  // a grid that a kernel has launched has no dependents
    const bool first = !w.cta->triggered;
    how_.triggered = true;
    how_.late |= first && waited_ && w.clocks.knows_launch(primary_);
    w.cta->triggered = true;
    if (!holds_triggered || !first) return false;
    Cluster& cluster = *w.cta->cluster;
    cluster.demoted |= std::ranges::all_of(cluster.ctas, [](const auto& cta) { return cta->triggered; });
    return true;
}

// A launch begins when all are complete that it is not beside. A dependent one may begin as soon as the one before it
// may: of those that came before that one, it is behind the same, and behind those that an event orders before this
// one alone.
void Machine::begin_beside() {
    std::vector<u32> known;
    const InFlight* const before = primary_ ? &in_flight_[primary_ - 1] : nullptr;
    if (before) {
        known = before->how.late ? before->complete : before->at_start;
        std::ranges::sort(known);
    }
    const auto through_primary = [&](u32 n) {
        return n < primary_ && !std::ranges::binary_search(known, n) &&
               !std::ranges::binary_search(before->beside, in_flight_[n - 1].number);
    };
    at_start_.clear();
    for (u32 n = 1; n <= in_flight_.size(); ++n) {
        const bool open = n == primary_ || through_primary(n);
        if (!open && !is_beside(in_flight_[n - 1].number)) at_start_.push_back(n);
    }
}

const std::vector<u32>& Machine::wait_for_launches() {
    if (runs_below()) return at_start_;
    if (overlap.undone()) overlap.redo(global.memory());
    if (dependent_ && !waited_ && primary_) {
        const InFlight& primary = in_flight_[primary_ - 1];
        for (const auto* before : {&primary.complete, &primary.below})
            complete_.insert(complete_.end(), before->begin(), before->end());
        complete_.push_back(primary_);
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
        try {
            run_grid(*this);
        } catch (...) {  // an observer's: what was undone is put back before anybody else looks at memory
            if (overlap.undone()) overlap.redo(global.memory());
            overlap.forget();
            throw;
        }
        cursor = nullptr;
    }
    running = nullptr;
    findings = nullptr;
    if (overlap.undone())
        overlap.redo(global.memory());
    else
        overlap.end_tail(global.memory(), failed || tree->size() > 1);
    collect_findings();
    tree->end(global);
    stats.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace ptxm
