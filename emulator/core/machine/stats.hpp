// What a launch has done, and how long it took.
#pragma once

#include <array>

#include "isa/program.hpp"

namespace ptxm {

struct Stats {
    u64 warp_instructions = 0, mma = 0, bulk_loads = 0, bulk_load_bytes = 0, bulk_stores = 0, bulk_store_bytes = 0,
        async_ops = 0, barrier_waits = 0, bank_conflicts = 0;
    std::array<u64, kClasses> executed{};     // by class; an attempt of one that waits is none
    u32 threads = 1;                          // of the host, that ran it
    double seconds = 0, product_seconds = 0;  // of these, in the multiplications of tcgen05.mma and wgmma
};

}  // namespace ptxm
