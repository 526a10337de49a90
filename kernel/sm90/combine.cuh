// The combine kernel: merges the partial results of a forward launch with splits, one warp a row, split 0 first.
//
// As common/combine.cuh, with the loads of eight splits in flight at once, and able to start while the forward kernel
// runs: a decode step is short enough for both to show.
#pragma once

#include <stdint.h>

#include "clocks.cuh"
#include "common/combine.cuh"
#include "common/row_output.cuh"
#include "fmha_launch.h"
#include "fmha_params.h"
#include "ptx/control.cuh"

namespace fmha::sm90 {

// Elements `index` to `index` + 3 of o; `index` is a multiple of 4.
__device__ __forceinline__ void store_vector(const FmhaParams& params, int64_t index, float4 v) {
    if (params.flags & kFmhaOutputBf16) {
        static_cast<uint2*>(params.o)[index / 4] = make_uint2(ptx::pack_bf16x2(v.x, v.y), ptx::pack_bf16x2(v.z, v.w));
    } else {
        static_cast<float4*>(params.o)[index / 4] = v;
    }
}

__device__ __forceinline__ void add_weighted(float4& sum, float4 part, float weight) {
    sum.x = fmaf(part.x, weight, sum.x);
    sum.y = fmaf(part.y, weight, sum.y);
    sum.z = fmaf(part.z, weight, sum.z);
    sum.w = fmaf(part.w, weight, sum.w);
}

__device__ __forceinline__ float4 scaled(float4 v, float factor) {
    return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

struct Merged {
    float maximum = -kInfinity;
    float sum = 0.0f;
    float4 o = {0.0f, 0.0f, 0.0f, 0.0f};
};

// Four columns of a row over all splits; `rows` from one split to the next.
__device__ __forceinline__ Merged merge_splits(const FmhaParams& params, int64_t row, int64_t rows, int vectors,
                                               int vector) {
    constexpr int kInFlight = 8;
    Merged merged;
#pragma unroll 1
    for (int first = 0; first < params.splits; first += kInFlight) {
        float maxima[kInFlight], sums[kInFlight];
        float4 parts[kInFlight];
        float maximum = merged.maximum;
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
            if (first + i < params.splits) {
                const int64_t part = (first + i) * rows + row;
                maxima[i] = params.partial_max[part];
                sums[i] = params.partial_sum[part];
                parts[i] = reinterpret_cast<const float4*>(params.partial_o)[part * vectors + vector];
                maximum = fmaxf(maximum, maxima[i]);
            }
        }
        const float shrink = split_weight(merged.maximum, maximum);
        merged.maximum = maximum;
        merged.sum *= shrink;
        merged.o = scaled(merged.o, shrink);
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
            if (first + i < params.splits) {
                const float weight = split_weight(maxima[i], maximum);
                merged.sum = fmaf(sums[i], weight, merged.sum);
                add_weighted(merged.o, parts[i], weight);
            }
        }
    }
    return merged;
}

template <int HeadDim>
__device__ __forceinline__ void combine(const FmhaParams& params) {
    constexpr int kVectors = HeadDim / 4;
    const int rows = params.t * params.heads;
    const int own = blockIdx.x * kFmhaCombineRows + threadIdx.x / 32;
    stamp_combine<0>();
    ptx::launch_dependents();
    if (own >= rows) {
        return;
    }
    const int64_t row = int64_t(blockIdx.z) * rows + own;
    ptx::wait_for_primary();
    stamp_combine<1>();
#pragma unroll 1
    for (int vector = threadIdx.x % 32; vector < kVectors; vector += 32) {
        const Merged merged = merge_splits(params, row, int64_t(params.batch) * rows, kVectors, vector);
        const float factor = output_factor(params, own % params.heads, merged.maximum, merged.sum);
        store_vector(params, (row * kVectors + vector) * 4, scaled(merged.o, factor));
        if (vector == 0) {
            store_statistics(params, row, merged.maximum, merged.sum);
        }
    }
    stamp_combine<2>();
}

}  // namespace fmha::sm90
