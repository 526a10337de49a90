// Two grids at a time, under programmatic launch, for schedules that draw (PTX ISA 9.7.13.16, griddepcontrol; CUDA C++
// programming guide, programmatic dependent launch and synchronization).
//
// Launches run one after the other. What a launch does to global memory once all its CTAs have let dependents begin, or
// have ended, is its tail. A dependent launch may begin with the tail undone; it is done, all at once, after
// instructions of the dependent whose number is drawn, or when one of its warps waits for what it depends on.
//
// What was written is written again. Atomics that nobody has looked at the results of, and reductions, are done again,
// to what is there then. Where a result was looked at, the tail has seen none of what the dependent does there: it
// comes before an atomic of the dependent, and what the dependent has stored there stays.
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "memory/memory.hpp"

namespace ptxm {

class Overlap {
public:
    // The launch in progress

    // All its CTAs have triggered or ended: what it writes from here on is its tail.
    void begin_tail(GlobalMemory& memory);
    bool in_tail() const { return !snapshots_.empty(); }
    // In the tail these bytes were read and written in one, which `again` does once more at a place that is like it.
    // Without it somebody has looked at what was there, or may have.
    using Again = std::function<void(u8*)>;
    void note(u64 address, u32 bytes, Again again);
    // It has ended. `lost`: as nothing that could be done again.
    void end_tail(GlobalMemory& memory, bool lost);

    // The launch that depends on it

    // Undoes the tail, where memory is as it was left.
    void undo(GlobalMemory& memory, std::mt19937_64& random);
    bool undone() const { return undone_; }
    // Instructions that the dependent may execute before the rest comes.
    u64 left(u64 instructions) const { return instructions < due_ ? due_ - instructions : 0; }
    void redo(GlobalMemory& memory);
    // Whether the tail that is undone has looked at what an atomic left at one of these bytes.
    bool looked_at(u64 address, u32 bytes) const;
    void forget();

private:
    struct Snapshot {
        u64 base;
        std::vector<u8> bytes;
    };
    struct Combined {
        u64 address;
        u32 bytes;
        Again again;
    };
    enum class How : u8 { written, combined, looked_at };
    // A run of bytes that the tail has changed; `at` in `before_` and `after_`.
    struct Run {
        u64 address;
        std::size_t at, bytes;
        How how;
    };
    struct Extent {
        u64 begin, end;
    };
    using Extents = std::vector<Extent>;  // ascending, apart
    static Extents extents_of(const std::vector<Combined>& all, bool looked_at);
    static bool meets(const Extents& extents, u64 begin, u64 end);
    bool compare(const Snapshot& s, const u8* now, const Extents& combined);
    bool has(GlobalMemory& memory, const Run& r, const std::vector<u8>& bytes) const;
    void put(GlobalMemory& memory, const Run& r, const std::vector<u8>& bytes) const;

    std::vector<Snapshot> snapshots_;
    std::vector<Combined> combined_;
    Extents looked_at_;
    bool lost_ = false;
    std::vector<Run> runs_;
    std::vector<u8> before_, after_;
    bool undone_ = false;
    u64 due_ = 0;
};

}  // namespace ptxm
