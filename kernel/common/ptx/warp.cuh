// Warp-wide instructions: election and vote; barriers of several warps.
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

// Bit l is lane l's `predicate`.
__device__ __forceinline__ uint32_t ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }

// Waits for `threads` threads, whole warps, on the barrier `index` of the CTA; 0 is __syncthreads'.
__device__ __forceinline__ void named_barrier_sync(uint32_t index, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(index), "r"(threads) : "memory");
}

}  // namespace fmha::ptx
