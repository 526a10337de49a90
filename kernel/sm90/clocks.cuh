// When a CTA got where, in builds with FMHA_SM90_CLOCKS; otherwise nothing. harness/bench/trials/clocks.py reads them.
#pragma once

#include <stdint.h>

namespace fmha::sm90 {

enum Stamp : int32_t {
    kEntered,
    kBarriersReady,  // the producer's warp, to kFirstKeyIssued
    kGridBeforeDone,
    kQueryIssued,
    kLoadsReady,
    kFirstKeyIssued,
    kConsumersMet,  // the first consumer thread, to the end
    kQueryThere,
    kFirstScores,
    kFirstSoftmax,
    kLastProduct,
    kStored,
};

#ifdef FMHA_SM90_CLOCKS

constexpr int kClockedCtas = 1024;  // of a grid, its first ones
constexpr int kClockWords = 32;     // a CTA: the stamps, in cycles of its SM; from 24 on:
constexpr int kNanoseconds = 24;    // the GPU's timer with the first and the last stamp, the SM;
constexpr int kCombine = 28;        // and of the combine kernel's CTA of the same number, at three places

extern "C" __device__ uint64_t fmha_sm90_clocks[kClockedCtas * kClockWords];

__device__ __forceinline__ uint64_t* clock_words() {
    const int cta = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    return fmha_sm90_clocks + min(cta, kClockedCtas - 1) * kClockWords;
}

__device__ __forceinline__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// By one thread of the CTA, the same for all stamps of its role.
template <Stamp At>
__device__ __forceinline__ void stamp(bool mine) {
    if (mine) {
        uint64_t now;
        asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
        clock_words()[At] = now;
        if constexpr (At == kEntered) {
            uint32_t sm;
            asm("mov.u32 %0, %%smid;" : "=r"(sm));
            clock_words()[kNanoseconds] = nanoseconds();
            clock_words()[kNanoseconds + 2] = sm;
        }
        if constexpr (At == kStored) {
            clock_words()[kNanoseconds + 1] = nanoseconds();
        }
    }
}

// The combine kernel: 0 at its start, 1 behind the wait for the forward kernel, 2 at its end.
template <int At>
__device__ __forceinline__ void stamp_combine() {
    if (threadIdx.x == 0) {
        clock_words()[kCombine + At] = nanoseconds();
    }
}

#else

template <Stamp At>
__device__ __forceinline__ void stamp(bool) {}

template <int At>
__device__ __forceinline__ void stamp_combine() {}

#endif

}  // namespace fmha::sm90
