// The combine kernel: merges the partial results of a forward launch with splits, one warp a row, split 0 first.
//
// As common/combine.cuh, with the loads of eight splits in flight at once, and able to start while the forward kernel
// runs: a decode step is short enough for both to show.
#pragma once

#include <stdint.h>

#include "clocks.cuh"
#include "common/combine.cuh"
#include "common/ptx/shared.cuh"
#include "common/row_output.cuh"
#include "fmha_launch.h"
#include "fmha_params.h"
#include "ptx/control.cuh"

namespace fmha::sm90 {

// Elements `index` to `index` + 3 of o; `index` is a multiple of 4.
__device__ __forceinline__ void store_vector(const FmhaParams& params, int64_t index, float4 v, bool live = true) {
    const bool bf16 = params.flags & kFmhaOutputBf16;
    if (live && bf16) {
        static_cast<uint2*>(params.o)[index / 4] = make_uint2(ptx::pack_bf16x2(v.x, v.y), ptx::pack_bf16x2(v.z, v.w));
    }
    if (live && !bf16) {
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

// A lane's columns of a row, four to a vector and the vectors 32 apart, over all splits.
template <int Vectors>
struct Merged {
    float maximum = -kInfinity;
    float sum = 0.0f;
    float4 o[Vectors] = {};
};

// `Lanes::kInFlight` parts at a time go through shared memory, which takes no registers: loads to registers ptxas
// sinks to where they are used, and so waits for each. The code is the same for every number of splits up to those in
// flight; unless `live` it loads nothing and merges zeros.
template <class Lanes>
__device__ __forceinline__ Merged<Lanes::kVectors> merge_row(const FmhaParams& params, int64_t row, int64_t rows,
                                                             bool live, uint32_t buffer) {
    const int lane = threadIdx.x % 32;
    Merged<Lanes::kVectors> merged;
#pragma unroll 1
    for (int chunk = 0; chunk < params.splits; chunk += 32) {  // a lane has one split's statistics
        const bool there = live && chunk + lane < params.splits;
        const int64_t own = (chunk + lane) * rows + row;
        const float split_max = there ? params.partial_max[own] : -kInfinity;
        const float split_sum = there ? params.partial_sum[own] : 0.0f;
        const float* part = params.partial_o + (chunk * rows + row) * Lanes::kHeadDim + lane * 4;
        float weight = 0.0f;
#pragma unroll 1
        for (int batch = 0; batch < min(32, params.splits - chunk); batch += Lanes::kInFlight) {
#pragma unroll
            for (int i = 0; i < Lanes::kInFlight; ++i) {
                const uint32_t bytes = live && lane < Lanes::kUsed && chunk + batch + i < params.splits ? 16 : 0;
#pragma unroll
                for (int v = 0; v < Lanes::kVectors; ++v) {
                    ptx::copy_async(buffer + (i * Lanes::kVectors + v) * 16 * kFmhaCombineThreads, part + 128 * v,
                                    bytes);
                }
                part += rows * Lanes::kHeadDim;
            }
            ptx::copy_async_commit();
            if (batch == 0) {
                const float maximum = fmaxf(merged.maximum, ptx::warp_max(split_max));
                const float shrink = split_weight(merged.maximum, maximum);
                weight = split_weight(split_max, maximum);
                merged.maximum = maximum;
                merged.sum *= shrink;
#pragma unroll
                for (int v = 0; v < Lanes::kVectors; ++v) {
                    merged.o[v] = scaled(merged.o[v], shrink);
                }
            }
            ptx::copy_async_wait();
#pragma unroll
            for (int i = 0; i < Lanes::kInFlight; ++i) {
                const float own_weight = __shfl_sync(0xffffffffu, weight, batch + i);
                merged.sum = fmaf(__shfl_sync(0xffffffffu, split_sum, batch + i), own_weight, merged.sum);
#pragma unroll
                for (int v = 0; v < Lanes::kVectors; ++v) {
                    const float4 o =
                        ptx::load_shared_vector(buffer + (i * Lanes::kVectors + v) * 16 * kFmhaCombineThreads);
                    add_weighted(merged.o[v], o, own_weight);
                }
            }
        }
    }
    return merged;
}

// What of a row a lane of the combine kernel takes.
template <int HeadDim>
struct CombineLanes {
    static constexpr int kHeadDim = HeadDim;
    static constexpr int kUsed = HeadDim / 4 < 32 ? HeadDim / 4 : 32;
    static constexpr int kVectors = HeadDim / 4 / kUsed;
    static constexpr int kInFlight = HeadDim == 512 ? 4 : 8;
};

// More than it needs: of what is launched while the forward kernel ends, four CTAs an SM, and not all where the first
// ones end.
constexpr int kCombineSharedBytes = 48 << 10;

template <int HeadDim>
__device__ __forceinline__ void combine(const FmhaParams& params) {
    using Lanes = CombineLanes<HeadDim>;
    __shared__ float4 parts[kCombineSharedBytes / sizeof(float4)];
    static_assert(Lanes::kInFlight * Lanes::kVectors * kFmhaCombineThreads * sizeof(float4) <= kCombineSharedBytes);
    const int rows = params.t * params.heads;
    const int own = blockIdx.x * kFmhaCombineRows + threadIdx.x / 32;
    stamp_combine<0>();
    ptx::launch_dependents();
    if (own >= rows) {
        return;
    }
    const int64_t row = int64_t(blockIdx.z) * rows + own;
    const int vector = threadIdx.x % 32;
    const uint32_t buffer = ptx::shared_address(&parts[threadIdx.x]);
    // The first turn is for nothing: a launch finds its instruction cache cold, and so fetches the code while the
    // forward kernel runs.
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
        if (turn == 1) {
            ptx::wait_for_primary();
            stamp_combine<1>();
        }
        const auto merged = merge_row<Lanes>(params, row, int64_t(params.batch) * rows, turn == 1, buffer);
        const bool live = turn == 1 && vector < Lanes::kUsed;
        const float factor = live ? output_factor(params, own % params.heads, merged.maximum, merged.sum) : 0.0f;
#pragma unroll
        for (int v = 0; v < Lanes::kVectors; ++v) {
            store_vector(params, row * HeadDim + (vector + 32 * v) * 4, scaled(merged.o[v], factor), live);
        }
        if (live && vector == 0) {
            store_statistics(params, row, merged.maximum, merged.sum);
        }
    }
    stamp_combine<2>();
}

}  // namespace fmha::sm90
