// What leaves the kernel for one row: statistics, normalisation, the merge of splits. Knows no machine.
#pragma once

#include <stdint.h>

#include "../sm100/ptx/math.cuh"
#include "fmha_params.h"

namespace fmha {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;
constexpr float kInfinity = __builtin_huge_valf();

// e^(m - maximum) of a part whose row_max is m; 0 for an empty part, also when every part is.
__device__ __forceinline__ float merge_weight(float m, float maximum) {
    return m == -kInfinity ? 0.0f : ptx::exp2((m - maximum) * kLog2E);
}

// What o_un is multiplied with: 1, or 1 / (row_sum + e^(sink - row_max)). `row_max` in natural-log units.
__device__ __forceinline__ float output_scale(const FmhaParams& params, int head, float row_max, float row_sum) {
    if (!(params.flags & kFmhaNormalise)) {
        return 1.0f;
    }
    if (row_max == -kInfinity) {
        return 0.0f;
    }
    const float sink = params.sink ? ptx::exp2((params.sink[head] - row_max) * kLog2E) : 0.0f;
    return __fdividef(1.0f, row_sum + sink);
}

__device__ __forceinline__ void store_statistics(const FmhaParams& params, int64_t row, float row_max, float row_sum) {
    if (params.row_max) {
        params.row_max[row] = row_max;
    }
    if (params.row_sum) {
        params.row_sum[row] = row_sum;
    }
    if (params.lse) {
        params.lse[row] = row_max + ptx::log2(row_sum) * kLn2;
    }
}

// Elements `index` to `index` + 3 of o; `index` is a multiple of 4.
__device__ __forceinline__ void store_output(const FmhaParams& params, int64_t index, float4 v) {
    if (params.flags & kFmhaOutputBf16) {
        static_cast<uint2*>(params.o)[index / 4] = make_uint2(ptx::pack_bf16x2(v.x, v.y), ptx::pack_bf16x2(v.z, v.w));
    } else {
        static_cast<float4*>(params.o)[index / 4] = v;
    }
}

}  // namespace fmha
