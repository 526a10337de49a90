// What a launch has done, and how long it took.
#pragma once

#include <array>
#include <chrono>

#include "isa/program.hpp"

namespace ptxm {

struct Stats {
    u64 warp_instructions = 0, mma = 0, bulk_loads = 0, bulk_load_bytes = 0, bulk_stores = 0, bulk_store_bytes = 0,
        async_ops = 0, barrier_waits = 0, bank_conflicts = 0;
    std::array<u64, kClasses> executed{};     // by class; an attempt of one that waits is none
    u32 threads = 1;                          // of the host, that ran it
    double seconds = 0, product_seconds = 0;  // of these, in the multiplications of tcgen05.mma and wgmma
};

// Adds the time of its life to a sum, by the clock on the wall.
class Stopwatch {
public:
    explicit Stopwatch(double& seconds) : seconds_(seconds) {}
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;
    ~Stopwatch() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

private:
    double& seconds_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace ptxm
