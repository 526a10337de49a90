#include "machine/machine.hpp"

#include <iterator>

#include "machine/grid/grid_tree.hpp"

namespace ptxm {

Machine::Machine(const Machine& main, AccessLog* log)
    : global(main.global, log),
      schedule(main.schedule),
      profile(main.profile),
      mma_sums(main.mma_sums),
      checks(main.checks),
      watched(main.watched),
      executed(main.executed.size()),
      seed(main.seed),
      max_instructions(main.max_instructions),
      program(main.program),
      launch(main.launch),
      multiprocessors(main.multiprocessors) {}

Machine::Machine() : tree(std::make_unique<GridTree>()) {}
Machine::~Machine() = default;

u16 Machine::next_number(const std::vector<std::unique_ptr<Cluster>>& resident) {
    for (;;) {
        if (++number_ == 0) {
            global.forget_shadows();
            in_flight_.clear();
            primary_ = 0;
            at_start_.clear();
            complete_.clear();
            below_.clear();
            if (tree) tree->forget();
            number_ = 1;
        }
        bool used = false;
        for (const auto& c : resident) used = used || c->number == number_;
        if (!used) return number_;
    }
}

void Machine::absorb(Machine& other) {
    std::move(other.told_.begin(), other.told_.end(), std::back_inserter(told_));
    for (std::size_t pc = 0; pc < executed.size(); ++pc) executed[pc] |= other.executed[pc];
    stats.warp_instructions += other.stats.warp_instructions;
    stats.mma += other.stats.mma;
    stats.bulk_loads += other.stats.bulk_loads;
    stats.bulk_load_bytes += other.stats.bulk_load_bytes;
    stats.bulk_stores += other.stats.bulk_stores;
    stats.bulk_store_bytes += other.stats.bulk_store_bytes;
    stats.async_ops += other.stats.async_ops;
    stats.barrier_waits += other.stats.barrier_waits;
    stats.bank_conflicts += other.stats.bank_conflicts;
    for (u32 k = 0; k < kClasses; ++k) stats.executed[k] += other.stats.executed[k];
    stats.product_seconds += other.stats.product_seconds;
}

}  // namespace ptxm
