// What the lanes of a warp count together.
#pragma once

#include <stdint.h>

#include "common/ptx/warp.cuh"

namespace fmha {

// Each lane of a converged warp has so many of something, which lie one lane's behind the other's: whose the one at
// `place` is, and which of that lane's.
struct LanePlace {
    int lane;
    int within;

    __device__ LanePlace(int count, int place) {
        int end = count;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const int before = __shfl_up_sync(0xffffffffu, end, distance);
            end += int(threadIdx.x % 32) < distance ? 0 : before;
        }
        lane = __ffs(ptx::ballot(end > place)) - 1;
        within = place - __shfl_sync(0xffffffffu, end - count, lane);
    }
};

}  // namespace fmha
