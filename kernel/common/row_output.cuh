// What is stored of a row: statistics, and O un-normalised or normalised, in fp32 or bf16.
// docs/understand/semantics.md, "Outputs".
#pragma once

#include <stdint.h>

#include "common/ptx/math.cuh"
#include "common/softmax.cuh"
#include "fmha_params.h"

namespace fmha {

constexpr float kLn2 = 0.69314718055994530942f;

// `max` in natural-log units; -inf, with a sum of 0, for a row that sees no key. `index` is stored_row's.
__device__ __forceinline__ void store_statistics(const FmhaParams& params, int64_t index, float max, float sum) {
    if (params.row_max) {
        params.row_max[index] = max;
    }
    if (params.row_sum) {
        params.row_sum[index] = sum;
    }
    if (params.lse) {
        params.lse[index] = max + ptx::log2(sum) * kLn2;
    }
}

// What o_un is multiplied by: 1, or 1 / (row_sum + exp(sink - row_max)).
__device__ __forceinline__ float output_factor(const FmhaParams& params, int head, float max, float sum) {
    if (!(params.flags & kFmhaNormalise)) {
        return 1.0f;
    }
    if (max == -kInfinity) {
        return 0.0f;
    }
    const float sink = params.sink ? ptx::exp2((params.sink[head] - max) * kLog2E) : 0.0f;
    return ptx::reciprocal(sum + sink);
}

template <int Elements>
__device__ __forceinline__ void store_floats(float* destination, const float (&values)[Elements]) {
#pragma unroll
    for (int i = 0; i < Elements; i += 4) {
        *reinterpret_cast<float4*>(destination + i) =
            make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
    }
}

// Elements [first, first + Elements) of row `index` of O, 16 bytes at a time.
template <int Elements>
__device__ __forceinline__ void store_output(const FmhaParams& params, int64_t index, int head_dim, int first,
                                             const float (&values)[Elements]) {
    const int64_t offset = index * head_dim + first;
    if (!(params.flags & kFmhaOutputBf16)) {
        store_floats(static_cast<float*>(params.o) + offset, values);
        return;
    }
    uint4* const destination = reinterpret_cast<uint4*>(static_cast<uint16_t*>(params.o) + offset);
#pragma unroll
    for (int i = 0; i < Elements; i += 8) {
        destination[i / 8] =
            make_uint4(ptx::pack_bf16x2(values[i], values[i + 1]), ptx::pack_bf16x2(values[i + 2], values[i + 3]),
                       ptx::pack_bf16x2(values[i + 4], values[i + 5]), ptx::pack_bf16x2(values[i + 6], values[i + 7]));
    }
}

}  // namespace fmha
