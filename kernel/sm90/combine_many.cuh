// The combine kernel for many splits of few rows: a CTA a row, whose four warps each merge a quarter of its splits, in
// order, and then meet. 128 splits of a row pass through each warp in one flight of loads.
#pragma once

#include "combine.cuh"
#include "tiles.cuh"

namespace fmha::sm90 {

// A warp's share of a row's splits, [begin, end), in order. Up to 32 parts are in flight at once; unless `live` it
// loads nothing and merges zeros.
template <class Lanes>
__device__ __forceinline__ Merged<Lanes> merge_share(const FmhaParams& params, int64_t row, int64_t rows, int begin,
                                                     int end, bool live, uint32_t buffer) {
    const int lane = threadIdx.x % 32;
    const bool used = lane < Lanes::kUsed;
    buffer += threadIdx.x / 32 * (Lanes::kManyInFlight * Lanes::kPartBytes) + lane * Lanes::kBytes;
    const auto at = [&](int part, int vector) {
        return buffer + (part * Lanes::kVectors + vector) * (Lanes::kUsed * Lanes::kBytes);
    };
    Merged<Lanes> merged;
#pragma unroll 1
    for (int chunk = begin; chunk < end; chunk += Lanes::kManyInFlight) {
        const int count = min(Lanes::kManyInFlight, end - chunk);
        // A lane has one split's statistics.
        const bool there = live && lane < count;
        const int64_t own = (chunk + lane) * rows + row;
        const float split_max = there ? params.partial_max[own] : -kInfinity;
        const float split_sum = there ? params.partial_sum[own] : 0.0f;
        float scales[Lanes::kScales];
#pragma unroll
        for (int i = 0; i < Lanes::kScales; ++i) {
            scales[i] = 1.0f;
            if (Lanes::kF16 && there) {
                scales[i] = partial_scales<Lanes::kHeadDim>(params)[own * Lanes::kScales + i];
            }
        }
        const int64_t first = (chunk * rows + row) * Lanes::kHeadDim + lane * Lanes::kElements;
        const char* part = reinterpret_cast<const char*>(params.partial_o) + first * Lanes::kElementBytes;
#pragma unroll 1
        for (int group = 0; group < count; group += Lanes::kGroup) {
#pragma unroll
            for (int i = 0; i < Lanes::kGroup; ++i) {
#pragma unroll
                for (int v = 0; v < Lanes::kVectors; ++v) {
                    if (used) {
                        ptx::copy_async<Lanes::kBytes>(at(group + i, v), part + 32 * Lanes::kBytes * v,
                                                       live && group + i < count);
                    }
                }
                part += rows * Lanes::kHeadDim * Lanes::kElementBytes;
            }
        }
        ptx::copy_async_commit();
        const float maximum = fmaxf(merged.maximum, ptx::warp_max(split_max));
        const float shrink = split_weight(merged.maximum, maximum);
        const float weight = split_weight(split_max, maximum);
        merged.maximum = maximum;
        merged.sum *= shrink;
#pragma unroll
        for (int v = 0; v < Lanes::kVectors; ++v) {
#pragma unroll
            for (int i = 0; i < Lanes::kElements; ++i) {
                merged.o[v][i] *= shrink;
            }
        }
        ptx::copy_async_wait();
#pragma unroll 1
        for (int group = 0; group < count; group += Lanes::kGroup) {
#pragma unroll
            for (int i = 0; i < Lanes::kGroup; ++i) {
                const float own_weight = __shfl_sync(0xffffffffu, weight, group + i);
                merged.sum = fmaf(__shfl_sync(0xffffffffu, split_sum, group + i), own_weight, merged.sum);
#pragma unroll
                for (int v = 0; v < Lanes::kVectors; ++v) {
                    const float scale = scales[v * Lanes::kScales / Lanes::kVectors];
                    const float counts =
                        Lanes::kF16 ? own_weight * __shfl_sync(0xffffffffu, scale, group + i) : own_weight;
                    if (used) {
                        add_part<Lanes>(merged.o[v], at(group + i, v), counts);
                    }
                }
            }
        }
    }
    return merged;
}

// The parts of a row that the warps of a CTA have merged, each a share of its splits, in the first warp, in order.
template <class Lanes>
__device__ __forceinline__ void meet(Merged<Lanes>& merged, uint32_t buffer) {
    constexpr int kBytes = (Lanes::kVectors * Lanes::kElements + 2) * 4;  // of a thread, by words: no bank conflicts
    static_assert(kFmhaCombineThreads * kBytes <= kCombineSharedBytes);
    const auto at = [&](int warp, int word) {
        return buffer + ((word * kFmhaCombineRows + warp) * 32 + threadIdx.x % 32) * 4;
    };
    __syncthreads();  // the buffer was read
    const int warp = threadIdx.x / 32;
    ptx::store_shared(at(warp, 0), merged.maximum);
    ptx::store_shared(at(warp, 1), merged.sum);
#pragma unroll
    for (int v = 0; v < Lanes::kVectors; ++v) {
#pragma unroll
        for (int i = 0; i < Lanes::kElements; ++i) {
            ptx::store_shared(at(warp, 2 + v * Lanes::kElements + i), merged.o[v][i]);
        }
    }
    __syncthreads();
    float maximum = -kInfinity;
#pragma unroll
    for (int other = 0; other < kFmhaCombineRows; ++other) {
        maximum = fmaxf(maximum, ptx::load_shared_float(at(other, 0)));
    }
    Merged<Lanes> all;
    all.maximum = maximum;
#pragma unroll 1
    for (int other = 0; other < kFmhaCombineRows; ++other) {
        const float weight = split_weight(ptx::load_shared_float(at(other, 0)), maximum);
        all.sum = fmaf(ptx::load_shared_float(at(other, 1)), weight, all.sum);
#pragma unroll
        for (int v = 0; v < Lanes::kVectors; ++v) {
#pragma unroll
            for (int i = 0; i < Lanes::kElements; ++i) {
                const float part = ptx::load_shared_float(at(other, 2 + v * Lanes::kElements + i));
                all.o[v][i] = fmaf(part, weight, all.o[v][i]);
            }
        }
    }
    merged = all;
    __syncthreads();  // the next turn writes there
}

template <class Lanes, bool Balanced>
__device__ __forceinline__ void combine_many_of_row(const FmhaParams& params, uint32_t buffer) {
    const int own = blockIdx.x;
    PlaneParts<Balanced> parts(params);
    // The first turn is for nothing, as in combine_row.
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
        if (turn == 1) {
            ptx::wait_for_primary();
            stamp_combine<1>();
            if (!parts.find(params) || !has_row(params, own, parts.plane)) {
                return;
            }
        }
        const Share share(parts.count, threadIdx.x / 32, kFmhaCombineRows);
        const int end = turn == 1 ? share.end : min(share.begin + 1, share.end);
        auto merged = merge_share<Lanes>(params, parts.before + own, parts.step, share.begin, end, turn == 1, buffer);
        meet<Lanes>(merged, buffer);
        const bool live = turn == 1 && threadIdx.x < Lanes::kUsed;
        store_merged<Lanes>(params, own, parts.plane, merged, live);
    }
}

template <int HeadDim, bool Balanced>
__device__ __forceinline__ void combine_many(const FmhaParams& params) {
    __shared__ float4 parts[kCombineSharedBytes / sizeof(float4)];
    stamp_combine<0>();
    ptx::launch_dependents();
    const uint32_t buffer = ptx::shared_address(parts);
    if (params.flags & kFmhaPartialF16) {
        combine_many_of_row<CombineLanes<HeadDim, true>, Balanced>(params, buffer);
    } else {
        combine_many_of_row<CombineLanes<HeadDim, false>, Balanced>(params, buffer);
    }
    stamp_combine<2>();
}

}  // namespace fmha::sm90
