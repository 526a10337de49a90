// Merges the partial results of a forward launch with splits, split 0 first: four columns a thread, several rows a CTA.
#include <stdint.h>

#include "../common/outputs.cuh"
#include "fmha_params.h"
#include "launch.h"
#include "ptx/control.cuh"

namespace fmha::sm90 {

// The loads of this many splits are in flight at once.
constexpr int kBatch = 8;

struct Merged {
    float maximum;
    float sum;
    float4 o;
};

// Column `vector` of row `row` over all splits; `stride` rows from one split to the next.
__device__ __forceinline__ Merged merge(const FmhaParams& params, int64_t row, int64_t stride, int vectors, int vector) {
    Merged merged{-kInfinity, 0.0f, {0.0f, 0.0f, 0.0f, 0.0f}};
    for (int first = 0; first < params.splits; first += kBatch) {
        float maxima[kBatch], sums[kBatch];
        float4 parts[kBatch];
        float maximum = merged.maximum;
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            if (first + i < params.splits) {
                const int64_t part = (first + i) * stride + row;
                maxima[i] = params.partial_max[part];
                sums[i] = params.partial_sum[part];
                parts[i] = reinterpret_cast<const float4*>(params.partial_o)[part * vectors + vector];
                maximum = fmaxf(maximum, maxima[i]);
            }
        }
        const float shrink = merge_weight(merged.maximum, maximum);
        merged.sum *= shrink;
        merged.o = make_float4(merged.o.x * shrink, merged.o.y * shrink, merged.o.z * shrink, merged.o.w * shrink);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            if (first + i < params.splits) {
                const float weight = merge_weight(maxima[i], maximum);
                merged.sum += sums[i] * weight;
                merged.o.x += parts[i].x * weight;
                merged.o.y += parts[i].y * weight;
                merged.o.z += parts[i].z * weight;
                merged.o.w += parts[i].w * weight;
            }
        }
        merged.maximum = maximum;
    }
    return merged;
}

}  // namespace fmha::sm90

#define FMHA_JOIN_(a, b) a##b
#define FMHA_JOIN(a, b) FMHA_JOIN_(a, b)

extern "C" __global__ void __launch_bounds__(kFmhaSm90CombineThreads)
    FMHA_JOIN(fmha_combine_sm90_hd, FMHA_HEAD_DIM)(const __grid_constant__ FmhaParams params) {
    using namespace fmha;
    constexpr int kVectors = FMHA_HEAD_DIM / 4;
    const int64_t rows = int64_t(params.batch) * params.t * params.heads;
    const int64_t index = int64_t(blockIdx.x) * kFmhaSm90CombineThreads + threadIdx.x;
    const int64_t row = index / kVectors;
    const int vector = index % kVectors;
    if (row >= rows) {
        return;
    }
    ptx::wait_for_primary();
    const sm90::Merged merged = sm90::merge(params, row, rows, kVectors, vector);
    const float scale = output_scale(params, int(row % params.heads), merged.maximum, merged.sum);
    store_output(params, index * 4,
                 make_float4(merged.o.x * scale, merged.o.y * scale, merged.o.z * scale, merged.o.w * scale));
    if (vector == 0) {
        store_statistics(params, row, merged.maximum, merged.sum);
    }
}
