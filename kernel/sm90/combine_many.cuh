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
        const SplitOfLane<Lanes> split(params, (chunk + lane) * rows + row, live && lane < count);
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
        const float weight = merged.raise(split.maximum);
        ptx::copy_async_wait();
#pragma unroll 1
        for (int group = 0; group < count; group += Lanes::kGroup) {
#pragma unroll
            for (int i = 0; i < Lanes::kGroup; ++i) {
                merged.add(split, weight, group + i, used, [&](int v) { return at(group + i, v); });
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
    in_two_turns<Lanes, Balanced>(
        params, own, threadIdx.x < Lanes::kUsed, [&](const PlaneParts<Balanced>& parts, bool live) {
            const Share share(parts.count, threadIdx.x / 32, kFmhaCombineRows);
            const int end = live ? share.end : min(share.begin + 1, share.end);
            auto merged = merge_share<Lanes>(params, parts.before + own, parts.step, share.begin, end, live, buffer);
            meet<Lanes>(merged, buffer);
            return merged;
        });
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
