// The combine kernels: they merge the parts that a forward kernel with splits > 1 has left.
// docs/understand/semantics.md, "Merging".
//
// A team of warps merges a slab of a row, the statistics and some columns of O. Its threads divide the columns and the
// splits among them: a thread has kLaneElements columns of every kParts-th split, and so a few loads, which are all in
// flight at once. Then the threads that have the same columns meet, always in the same order. So the result depends on
// how many splits there are and on nothing else.
//
//                    team          columns                     grid
//   fmha_combine     a warp        256, or all if fewer        (ceil(t * heads / kFmhaCombineRows), slabs, planes)
//   fmha_combine_many  the CTA     32                          (t * heads, slabs, planes)
//
// Both may be launched to overlap the forward kernel.
#pragma once

#include <stdint.h>

#include "common/combine.cuh"
#include "common/ptx/grid.cuh"
#include "common/row_output.cuh"
#include "common/work.cuh"
#include "fmha_launch.h"
#include "fmha_params.h"

namespace fmha {

constexpr int kLaneElements = 8;  // 16 bytes of bf16 output

// `InFlight` parts of a thread are loaded before the first is used. More take registers, and so CTAs, of which a
// multiprocessor holds `CtasPerSm`: where rows are many, those count for more.
template <int Warps, int Columns, int InFlight, int CtasPerSm>
struct Team {
    static constexpr int kWarps = Warps;
    static constexpr int kColumns = Columns;
    static constexpr int kInFlight = InFlight;
    static constexpr int kCtasPerSm = CtasPerSm;
    static constexpr int kLanes = Columns / kLaneElements;  // that share the columns of a part
    static constexpr int kParts = Warps * 32 / kLanes;      // splits that are read side by side
};

// Splits of a row that were merged: the statistics, and a thread's columns of O.
struct Merged {
    float max = -kInfinity;
    float sum = 0.0f;
    float o[kLaneElements] = {};
};

// A weight of 0 silences whatever the other side holds.
__device__ __forceinline__ void add_weighted(Merged& merged, const Merged& other, float weight) {
    merged.sum = weight == 0.0f ? merged.sum : fmaf(other.sum, weight, merged.sum);
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
        merged.o[i] = weight == 0.0f ? merged.o[i] : fmaf(other.o[i], weight, merged.o[i]);
    }
}

// `count` results over disjoint sets of keys, in order.
template <int Count>
__device__ __forceinline__ Merged merge(const Merged (&parts)[Count]) {
    Merged merged;
#pragma unroll
    for (int i = 0; i < Count; ++i) {
        merged.max = fmaxf(merged.max, parts[i].max);
    }
#pragma unroll
    for (int i = 0; i < Count; ++i) {
        add_weighted(merged, parts[i], split_weight(parts[i].max, merged.max));
    }
    return merged;
}

// What split `split` has left of row `row` of all planes' `rows`: nothing, if there is no such split.
__device__ __forceinline__ Merged load_part(const FmhaParams& params, int64_t rows, int64_t row, int split,
                                            int column) {
    Merged part;
    if (split < params.splits) {
        const int64_t index = split * rows + row;
        const float4* const o = reinterpret_cast<const float4*>(params.partial_o + index * params.head_dim + column);
        const float4 low = o[0], high = o[1];
        part = {params.partial_max[index],
                params.partial_sum[index],
                {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
    }
    return part;
}

// A thread's share of the splits.
template <class Team>
__device__ __forceinline__ Merged merge_share(const FmhaParams& params, int64_t rows, int64_t row, int first,
                                              int column) {
    Merged merged;
#pragma unroll 1
    for (int split = first; split < params.splits; split += Team::kParts * Team::kInFlight) {
        Merged parts[1 + Team::kInFlight];
        parts[0] = merged;
#pragma unroll
        for (int i = 0; i < Team::kInFlight; ++i) {
            parts[1 + i] = load_part(params, rows, row, split + i * Team::kParts, column);
        }
        merged = merge(parts);
    }
    return merged;
}

// The shares of the lanes of a warp that have the same columns, in each of them.
template <class Team>
__device__ __forceinline__ Merged meet_in_warp(Merged merged) {
#pragma unroll
    for (int distance = Team::kLanes; distance < 32; distance *= 2) {
        Merged both[2] = {merged, {}};
        both[1].max = __shfl_xor_sync(0xffffffffu, merged.max, distance);
        both[1].sum = __shfl_xor_sync(0xffffffffu, merged.sum, distance);
#pragma unroll
        for (int i = 0; i < kLaneElements; ++i) {
            both[1].o[i] = __shfl_xor_sync(0xffffffffu, merged.o[i], distance);
        }
        merged = merge(both);
    }
    return merged;
}

// Those of the warps of a team, in the first warp.
template <class Team>
__device__ __forceinline__ Merged meet_in_team(const Merged& merged) {
    __shared__ Merged shares[Team::kWarps][Team::kLanes];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane < Team::kLanes) {
        shares[warp][lane] = merged;
    }
    __syncthreads();
    Merged all[Team::kWarps];
#pragma unroll
    for (int i = 0; i < Team::kWarps; ++i) {
        all[i] = shares[i][lane % Team::kLanes];
    }
    return merge(all);
}

// Row `row` of all planes' `rows`. `stored` is where it is stored, `head` its query head.
template <class Team>
__device__ __forceinline__ void combine_row(const FmhaParams& params, int64_t rows, int64_t row, int64_t stored,
                                            int head) {
    const int thread = threadIdx.x % (Team::kWarps * 32);
    const int column = blockIdx.y * Team::kColumns + thread % Team::kLanes * kLaneElements;
    Merged merged = merge_share<Team>(params, rows, row, thread / Team::kLanes, column);
    merged = meet_in_warp<Team>(merged);
    if constexpr (Team::kWarps > 1) {
        merged = meet_in_team<Team>(merged);
    }
    if (thread < Team::kLanes) {
        const float factor = output_factor(params, head, merged.max, merged.sum);
#pragma unroll
        for (int i = 0; i < kLaneElements; ++i) {
            merged.o[i] *= factor;
        }
        store_output(params, stored, params.head_dim, column, merged.o);
    }
    if (blockIdx.y == 0 && thread == 0) {
        store_statistics(params, stored, merged.max, merged.sum);
    }
}

// Of a launch with kFmhaByHead or without: of entries of their own, since a row takes a warp a hundred instructions.
template <class Team, bool ByHead>
__device__ __forceinline__ void combine(const FmhaParams& params) {
    constexpr int kTeams = kFmhaCombineRows / Team::kWarps;
    const int own = blockIdx.x * kTeams + threadIdx.x / (Team::kWarps * 32);
    const int rows = params.t * params.heads;
    const int64_t all = int64_t(params.batch) * rows, row = int64_t(blockIdx.z) * rows + own;
    ptx::launch_dependents();
    ptx::wait_for_primary();
    if (own >= rows) {
        return;
    }
    if constexpr (ByHead) {
        const Plane plane = plane_of(params, blockIdx.z);
        if (own < queries_of(params, plane.entry) * params.heads) {
            combine_row<Team>(params, all, row, stored_row(params, plane, own), query_head(params, plane, own));
        }
    } else {
        combine_row<Team>(params, all, row, row, int(row % params.heads));
    }
}

}  // namespace fmha
