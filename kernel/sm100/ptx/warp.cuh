// Warp-wide instructions: election and vote.
#pragma once

#include <stdint.h>

namespace fmha::ptx {

// True in one lane of a converged warp, always the same one.
__device__ __forceinline__ bool elect_one() {
    uint32_t elected;
    asm volatile(
        "{\n\t"
        ".reg .pred elected;\n\t"
        "elect.sync _|elected, 0xffffffff;\n\t"
        "selp.b32 %0, 1, 0, elected;\n\t"
        "}"
        : "=r"(elected));
    return elected != 0;
}

// The same answer in every lane: whether any lane's `predicate` holds.
__device__ __forceinline__ bool any_lane(bool predicate) { return __any_sync(0xffffffffu, predicate) != 0; }

}  // namespace fmha::ptx
