// Rows of V behind the last key, which become zeros; in kernels that know pages a warp of its own clears them.
#pragma once

#include <stdint.h>

#include "common/ptx/mbarrier.cuh"
#include "common/ptx/shared.cuh"
#include "place.cuh"

namespace fmha::sm90 {

// The rows of a unit from `first` on become zeros, and the unit is full. By the whole warp.
template <class T>
__device__ __forceinline__ void clear_rows(const SharedMap<T>& shared, int slot, int first) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int vector = first * 8 + lane; vector < T::kKeys * 8; vector += 32) {
#pragma unroll
        for (int position = 0; position < T::kBoxes; ++position) {
            ptx::store_shared_v4(shared.slot(slot) + position * T::kBoxBytes + vector * 16, 0u, 0u, 0u, 0u);
        }
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) {
        ptx::mbarrier_arrive(shared.full(slot));
    }
}

// What the producer tells of a tail: the first row to clear, and from this bit on the slot of the first unit; or that
// no tail comes any more.
constexpr int kSlotShift = 16;
constexpr uint32_t kNoTail = 0xffffffffu;

// The warp that clears tails. Two may be under way, that of a row tile and that of the next one, and take turns at
// barriers and words: before V of a third is loaded its Q is, for which the consumers have read the Q of the second,
// and so multiplied the last V of the first.
template <class T>
__device__ __forceinline__ void clear_tails(const SharedMap<T>& shared) {
#pragma unroll 1
    for (int tail = 0;; ++tail) {
        int slot = 0, first = 0;
#pragma unroll 1
        for (int unit = 0; unit < T::kUnits; ++unit) {
            ptx::mbarrier_wait(shared.tail(unit, tail % 2), tail / 2 % 2);
            if (unit == 0) {
                uint32_t told = 0;
                if (threadIdx.x % 32 == 0) {  // alone, as Place reads
                    told = ptx::load_shared(shared.tail_word(tail % 2));
                }
                told = ptx::uniform(told);
                if (told == kNoTail) {
                    return;
                }
                slot = told >> kSlotShift;
                first = told & ((1u << kSlotShift) - 1);
            }
            clear_rows(shared, slot, first);
            __syncwarp();
            slot = slot + 1 == T::kSlots ? 0 : slot + 1;
        }
    }
}

}  // namespace fmha::sm90
