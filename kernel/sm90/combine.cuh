// The combine kernel: merges the partial results of a forward launch with splits, one warp a row, split 0 first.
//
// As common/combine.cuh, with the loads of eight splits in flight at once, and able to start while the forward kernel
// runs: a decode step is short enough for both to show.
#pragma once

#include <stdint.h>

#include "clocks.cuh"
#include "common/combine.cuh"
#include "common/partial.cuh"
#include "common/ptx/shared.cuh"
#include "common/row_output.cuh"
#include "common/work.cuh"
#include "fmha_launch.h"
#include "fmha_params.h"
#include "launch.h"
#include "ptx/control.cuh"

namespace fmha::sm90 {

// Partial results in f16: each row of each column group over a power of two of its own. Behind the elements of all
// splits of all planes their scales, [rows, kPartialScales].
template <int HeadDim>
constexpr int kPartialScales = fmha_sm90_launch(HeadDim).column_groups;

template <int HeadDim>
__device__ __forceinline__ float* partial_scales(const FmhaParams& params) {
    const int64_t planes = params.parts > 0 ? int64_t(params.parts) : int64_t(params.splits) * params.batch;
    return params.partial_o + planes * params.t * params.heads * (HeadDim / 2);
}

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

__device__ __forceinline__ float4 scaled(float4 v, float factor) {
    return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

// More than it needs: of what is launched while the forward kernel ends, four CTAs an SM, and not all where the first
// ones end.
constexpr int kCombineSharedBytes = 48 << 10;

// What of a row a lane of the combine kernel takes: vectors of what one load brings, 32 of them apart.
template <int HeadDim, bool F16>
struct CombineLanes {
    static constexpr int kHeadDim = HeadDim;
    static constexpr bool kF16 = F16;
    static constexpr int kElements = F16 && HeadDim >= 256 ? 8 : 4;  // of a vector
    static constexpr int kElementBytes = F16 ? 2 : 4;
    static constexpr int kBytes = kElements * kElementBytes;
    static constexpr int kUsed = HeadDim / kElements < 32 ? HeadDim / kElements : 32;
    static constexpr int kVectors = HeadDim / kElements / kUsed;
    static constexpr int kInFlight = HeadDim == 512 && !F16 ? 4 : 8;
    static constexpr int kScales = F16 ? kPartialScales<HeadDim> : 1;
    static_assert(kVectors % kScales == 0, "a vector has one scale");

    // Of combine_many.cuh: bytes of a part, parts that four warps have room for, and of those the ones between which
    // there is no branch, and the ones in flight.
    static constexpr int kPartBytes = kUsed * kVectors * kBytes;
    static constexpr int kRoom = kCombineSharedBytes / (kFmhaCombineRows * kPartBytes);
    static constexpr int kGroup = kRoom < 8 ? 4 : 8;
    static constexpr int kManyInFlight = kRoom / kGroup * kGroup < 32 ? kRoom / kGroup * kGroup : 32;
    static_assert(kManyInFlight > 0);
};

// Adds a vector that lies at `address`.
template <class Lanes>
__device__ __forceinline__ void add_part(float (&o)[Lanes::kElements], uint32_t address, float weight) {
    if constexpr (Lanes::kF16) {
#pragma unroll
        for (int i = 0; i < Lanes::kElements; i += 4) {
            const uint2 packed = ptx::load_shared_words(address + i * 2);
            const float2 low = ptx::unpack_f16x2(packed.x), high = ptx::unpack_f16x2(packed.y);
            o[i] = fmaf(low.x, weight, o[i]);
            o[i + 1] = fmaf(low.y, weight, o[i + 1]);
            o[i + 2] = fmaf(high.x, weight, o[i + 2]);
            o[i + 3] = fmaf(high.y, weight, o[i + 3]);
        }
    } else {
        const float4 v = ptx::load_shared_vector(address);
        o[0] = fmaf(v.x, weight, o[0]);
        o[1] = fmaf(v.y, weight, o[1]);
        o[2] = fmaf(v.z, weight, o[2]);
        o[3] = fmaf(v.w, weight, o[3]);
    }
}

// What a lane has of one split: its statistics, and the scales of its elements. It weighs nothing unless it is `there`.
template <class Lanes>
struct SplitOfLane {
    float maximum, sum;
    float scales[Lanes::kScales];

    __device__ __forceinline__ SplitOfLane(const FmhaParams& params, int64_t row, bool there)
        : maximum(there ? params.partial_max[row] : -kInfinity), sum(there ? params.partial_sum[row] : 0.0f) {
#pragma unroll
        for (int i = 0; i < Lanes::kScales; ++i) {
            scales[i] = 1.0f;
            if (Lanes::kF16 && there) {
                scales[i] = partial_scales<Lanes::kHeadDim>(params)[row * Lanes::kScales + i];
            }
        }
    }
};

// A lane's elements of a row over all splits.
template <class Lanes>
struct Merged {
    float maximum = -kInfinity;
    float sum = 0.0f;
    float o[Lanes::kVectors][Lanes::kElements] = {};

    // Relative to the maximum of these splits as well, of which each lane has one; the weight of that one.
    __device__ __forceinline__ float raise(float split_max) {
        const float highest = fmaxf(maximum, ptx::warp_max(split_max));
        const float shrink = split_weight(maximum, highest);
        maximum = highest;
        sum *= shrink;
#pragma unroll
        for (int v = 0; v < Lanes::kVectors; ++v) {
#pragma unroll
            for (int i = 0; i < Lanes::kElements; ++i) {
                o[v][i] *= shrink;
            }
        }
        return split_weight(split_max, highest);
    }

    // The part of the split of lane `from`, whose vectors lie at `at(vector)`, unless this lane has none of it.
    template <class At>
    __device__ __forceinline__ void add(const SplitOfLane<Lanes>& split, float weight, int from, bool used, At at) {
        const float own_weight = __shfl_sync(0xffffffffu, weight, from);
        sum = fmaf(__shfl_sync(0xffffffffu, split.sum, from), own_weight, sum);
#pragma unroll
        for (int v = 0; v < Lanes::kVectors; ++v) {
            const float scale = split.scales[v * Lanes::kScales / Lanes::kVectors];
            const float counts = Lanes::kF16 ? own_weight * __shfl_sync(0xffffffffu, scale, from) : own_weight;
            if (used) {
                add_part<Lanes>(o[v], at(v), counts);
            }
        }
    }
};

// `Lanes::kInFlight` parts at a time go through shared memory, which takes no registers: loads to registers ptxas
// sinks to where they are used, and so waits for each. The code is the same for every number of splits up to those in
// flight; unless `live` it loads nothing and merges zeros.
template <class Lanes>
__device__ __forceinline__ Merged<Lanes> merge_row(const FmhaParams& params, int64_t row, int64_t rows, int splits,
                                                   bool live, uint32_t buffer) {
    const int lane = threadIdx.x % 32;
    Merged<Lanes> merged;
    const auto at = [&](int part, int vector) {
        return buffer + ((part * Lanes::kVectors + vector) * kFmhaCombineThreads + threadIdx.x) * Lanes::kBytes;
    };
#pragma unroll 1
    for (int chunk = 0; chunk < splits; chunk += 32) {  // a lane has one split's statistics
        const SplitOfLane<Lanes> split(params, (chunk + lane) * rows + row, live && chunk + lane < splits);
        const int64_t first = (chunk * rows + row) * Lanes::kHeadDim + lane * Lanes::kElements;
        const char* part = reinterpret_cast<const char*>(params.partial_o) + first * Lanes::kElementBytes;
        float weight = 0.0f;
#pragma unroll 1
        for (int batch = 0; batch < min(32, splits - chunk); batch += Lanes::kInFlight) {
#pragma unroll
            for (int i = 0; i < Lanes::kInFlight; ++i) {
                const bool due = live && lane < Lanes::kUsed && chunk + batch + i < splits;
#pragma unroll
                for (int v = 0; v < Lanes::kVectors; ++v) {
                    ptx::copy_async<Lanes::kBytes>(at(i, v), part + 32 * Lanes::kBytes * v, due);
                }
                part += rows * Lanes::kHeadDim * Lanes::kElementBytes;
            }
            ptx::copy_async_commit();
            if (batch == 0) {
                weight = merged.raise(split.maximum);
            }
            ptx::copy_async_wait();
#pragma unroll
            for (int i = 0; i < Lanes::kInFlight; ++i) {
                merged.add(split, weight, batch + i, true, [&](int v) { return at(i, v); });
            }
        }
    }
    return merged;
}

// What a warp stores of the row `own` of a plane, the plane `index`.
template <class Lanes>
__device__ __forceinline__ void store_merged(const FmhaParams& params, int own, int index, const Merged<Lanes>& merged,
                                             bool live) {
    const int lane = threadIdx.x % 32;
    const Plane plane = plane_of(params, index);
    const int64_t stored = kKvHeads ? stored_row(params, plane, own) : int64_t(index) * params.t * params.heads + own;
    const float factor =
        live ? output_factor(params, query_head(params, plane, own), merged.maximum, merged.sum) : 0.0f;
#pragma unroll
    for (int v = 0; v < Lanes::kVectors; ++v) {
#pragma unroll
        for (int i = 0; i < Lanes::kElements; i += 4) {
            const float* const o = &merged.o[v][i];
            store_vector(params, stored * Lanes::kHeadDim + (lane + 32 * v) * Lanes::kElements + i,
                         scaled(make_float4(o[0], o[1], o[2], o[3]), factor), live);
        }
    }
    if (live && lane == 0) {
        store_statistics(params, stored, merged.maximum, merged.sum);
    }
}

// Whether a plane has row `own`: with packed queries an entry may have fewer than others.
__device__ __forceinline__ bool has_row(const FmhaParams& params, int own, int plane) {
    return !kPaged || own < queries_of(params, entry_of(params, plane)) * params.heads;
}

// The grid's plane, and where its partial results are: `step` rows from one to the next.
template <bool Balanced>
struct PlaneParts {
    int plane = blockIdx.z;
    int64_t before, step;  // rows
    int count;

    // Until the forward kernel is done, what holds without balanced splits.
    __device__ explicit PlaneParts(const FmhaParams& params)
        : before(int64_t(blockIdx.z) * params.t * params.heads),
          step(int64_t(params.batch) * params.t * params.heads),
          count(params.splits) {}

    // Once it is done; false where there is nothing to merge.
    __device__ bool find(const FmhaParams& params) {
        if constexpr (Balanced) {
            const int2 share = reinterpret_cast<const int2*>(params.shares)[blockIdx.z];
            const int heads = params.kv_heads, rows = params.t * params.heads;
            if (int(gridDim.z) < params.batch) {
                plane = share.x - by_kv_heads(params, blockIdx.z) * heads;
            }
            step = int64_t(heads) * rows;
            before = int64_t(share.x) * rows;
            count = share.y;
            return count > 1;
        }
        return true;
    }
};

// Merges row `own` of the grid's plane by `merge(parts, live)`, and stores it. The first turn is for nothing: a launch
// finds its instruction cache cold, and so fetches the code while the forward kernel runs.
template <class Lanes, bool Balanced, class Merge>
__device__ __forceinline__ void in_two_turns(const FmhaParams& params, int own, bool stores, Merge merge) {
    PlaneParts<Balanced> parts(params);
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
        if (turn == 1) {
            ptx::wait_for_primary();
            stamp_combine<1>();
            if (!parts.find(params) || !has_row(params, own, parts.plane)) {
                return;
            }
        }
        const Merged<Lanes> merged = merge(parts, turn == 1);
        store_merged<Lanes>(params, own, parts.plane, merged, turn == 1 && stores);
    }
}

template <class Lanes, bool Balanced>
__device__ __forceinline__ void combine_row(const FmhaParams& params, int own, uint32_t buffer) {
    static_assert(Lanes::kInFlight * Lanes::kVectors * kFmhaCombineThreads * Lanes::kBytes <= kCombineSharedBytes);
    in_two_turns<Lanes, Balanced>(
        params, own, threadIdx.x % 32 < Lanes::kUsed, [&](const PlaneParts<Balanced>& parts, bool live) {
            return merge_row<Lanes>(params, parts.before + own, parts.step, parts.count, live, buffer);
        });
}

template <int HeadDim, bool Balanced>
__device__ __forceinline__ void combine(const FmhaParams& params) {
    __shared__ float4 parts[kCombineSharedBytes / sizeof(float4)];
    const int own = blockIdx.x * kFmhaCombineRows + threadIdx.x / 32;
    stamp_combine<0>();
    ptx::launch_dependents();
    if (own < params.t * params.heads) {
        const uint32_t buffer = ptx::shared_address(parts);
        if (params.flags & kFmhaPartialF16) {
            combine_row<CombineLanes<HeadDim, true>, Balanced>(params, own, buffer);
        } else {
            combine_row<CombineLanes<HeadDim, false>, Balanced>(params, own, buffer);
        }
        stamp_combine<2>();
    }
}

}  // namespace fmha::sm90
