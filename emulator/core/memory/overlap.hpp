// Two grids at a time, under programmatic launch, for schedules that draw (PTX ISA 9.7.13.16, griddepcontrol; CUDA C++
// programming guide, programmatic dependent launch and synchronization).
//
// Launches run one after the other. What a launch has written to global memory once all its CTAs have let dependents
// begin, or have ended, is its tail. A dependent launch may begin with the tail undone; it is done, all at once, after
// instructions of the dependent whose number is drawn, or when one of its warps waits for what it depends on.
#pragma once

#include <random>
#include <vector>

#include "memory/memory.hpp"

namespace ptxm {

class Overlap {
public:
    // The launch in progress

    // All its CTAs have triggered or ended: what it writes from here on is its tail.
    void begin_tail(GlobalMemory& memory);
    // It has ended. `counted`: it has read and written in one since, which bytes alone do not do again.
    void end_tail(GlobalMemory& memory, bool counted);

    // The launch that depends on it

    // Undoes the tail, where memory is as it was left.
    void undo(GlobalMemory& memory, std::mt19937_64& random);
    bool undone() const { return undone_; }
    // Instructions that the dependent may execute before the rest comes.
    u64 left(u64 instructions) const { return instructions < due_ ? due_ - instructions : 0; }
    void redo(GlobalMemory& memory);
    void forget();

private:
    struct Snapshot {
        u64 base;
        std::vector<u8> bytes;
    };
    // A run of bytes that the tail has changed; `at` in `before_` and `after_`.
    struct Run {
        u64 address;
        std::size_t at, bytes;
    };
    void put(GlobalMemory& memory, const std::vector<u8>& bytes) const;

    std::vector<Snapshot> snapshots_;
    std::vector<Run> runs_;
    std::vector<u8> before_, after_;
    bool undone_ = false;
    u64 due_ = 0;
};

}  // namespace ptxm
