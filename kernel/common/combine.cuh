// The combine kernel: merges the parts that a forward kernel with splits > 1 has left, one warp a row.
// docs/understand/semantics.md, "Merging".
//
// Splits are added in order, so the result depends on how many there are and on nothing else.
#pragma once

#include <stdint.h>

#include "common/row_output.cuh"
#include "common/softmax.cuh"
#include "common/work.cuh"
#include "fmha_launch.h"
#include "fmha_params.h"

namespace fmha {

constexpr int kLaneElements = 8;  // 16 bytes of bf16 output

// e^(max of the split - max), which is what the split's parts count for; 0 for a split without keys.
__device__ __forceinline__ float split_weight(float split_max, float max) {
    return split_max == -kInfinity ? 0.0f : ptx::exp2((split_max - max) * kLog2E);
}

__device__ __forceinline__ void add_weighted(float (&sums)[kLaneElements], const float* part, float weight) {
#pragma unroll
    for (int i = 0; i < kLaneElements; i += 4) {
        const float4 v = *reinterpret_cast<const float4*>(part + i);
        sums[i] = fmaf(v.x, weight, sums[i]);
        sums[i + 1] = fmaf(v.y, weight, sums[i + 1]);
        sums[i + 2] = fmaf(v.z, weight, sums[i + 2]);
        sums[i + 3] = fmaf(v.w, weight, sums[i + 3]);
    }
}

// Row `row` of all planes' `rows`. `stored` is where it is stored, `head` its query head.
__device__ __forceinline__ void combine_row(const FmhaParams& params, int64_t rows, int64_t row, int64_t stored,
                                            int head, int lane) {
    float max = -kInfinity;
    for (int s = 0; s < params.splits; ++s) {
        max = fmaxf(max, params.partial_max[s * rows + row]);
    }
    float sum = 0.0f;
    for (int s = 0; s < params.splits; ++s) {
        sum = fmaf(params.partial_sum[s * rows + row], split_weight(params.partial_max[s * rows + row], max), sum);
    }
    if (lane == 0) {
        store_statistics(params, stored, max, sum);
    }
    const float factor = output_factor(params, head, max, sum);
    for (int first = lane * kLaneElements; first < params.head_dim; first += 32 * kLaneElements) {
        float output[kLaneElements] = {};
        for (int s = 0; s < params.splits; ++s) {
            const int64_t part = s * rows + row;
            const float weight = split_weight(params.partial_max[part], max);
            if (weight != 0.0f) {
                add_weighted(output, params.partial_o + part * params.head_dim + first, weight);
            }
        }
#pragma unroll
        for (int i = 0; i < kLaneElements; ++i) {
            output[i] *= factor;
        }
        store_output(params, stored, params.head_dim, first, output);
    }
}

// Of a launch with kFmhaByHead or without: of entries of their own, since a row takes a warp a hundred instructions.
template <bool ByHead>
__device__ __forceinline__ void combine(const FmhaParams& params) {
    const int own = blockIdx.x * kFmhaCombineRows + threadIdx.x / 32;
    const int rows = params.t * params.heads;
    if (own < rows) {
        const int64_t all = int64_t(params.batch) * rows, row = int64_t(blockIdx.z) * rows + own;
        if constexpr (ByHead) {
            const Plane plane = plane_of(params, blockIdx.z);
            if (own < queries_of(params, plane.entry) * params.heads) {
                combine_row(params, all, row, stored_row(params, plane, own), query_head(params, plane, own),
                            threadIdx.x % 32);
            }
        } else {
            combine_row(params, all, row, row, int(row % params.heads), threadIdx.x % 32);
        }
    }
}

}  // namespace fmha
