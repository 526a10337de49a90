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
#include "partial.cuh"
#include "portions.cuh"

namespace fmha {

// Of rows of HeadDim columns, which lie in groups of Group. `InFlight` parts of a thread are loaded before the first is
// used, of f16 and of fp32. More take registers, and so CTAs, of which a multiprocessor holds `CtasPerSm`: where rows
// are many, those count for more.
template <int HeadDim, int Group, int Warps, int Columns, int InFlightF16, int InFlightF32, int CtasPerSm>
struct Team {
    static constexpr int kHeadDim = HeadDim;
    static constexpr int kGroup = Group;
    static constexpr int kWarps = Warps;
    static constexpr int kColumns = Columns;
    static constexpr int kInFlightF16 = InFlightF16;
    static constexpr int kInFlightF32 = InFlightF32;
    static constexpr int kCtasPerSm = CtasPerSm;
    static constexpr int kLanes = Columns / kLaneElements;  // that share the columns of a part
    static constexpr int kParts = Warps * 32 / kLanes;      // splits that are read side by side
    static constexpr int kOwn = Columns / 32;               // columns of a lane once those of its warp have met
};

// Splits of a row that were merged: the statistics, and `Elements` columns of O.
template <int Elements>
struct Merged {
    float max = -kInfinity;
    float sum = 0.0f;
    float o[Elements] = {};
};

// The parts of a row that a thread has in flight together, of splits `begin` and behind it.
template <class Team, int Count>
struct Flight {
    int rows, row;  // of a split, and of all planes
    int begin, first;
    uint32_t index[Count];
    int parts = 0;  // of the plane, with balanced splits

    __device__ __forceinline__ int splits(const FmhaParams& params) const {
        return balanced(params) ? parts : params.splits;
    }

    __device__ __forceinline__ int split(int i) const { return begin + first + i * Team::kParts; }

    // Nothing lies behind the last split: it is read again. Computed here, which may be beside the forward kernel, and
    // not at the loads.
    __device__ __forceinline__ void find(int splits) {
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            index[i] = uint32_t(min(split(i), splits - 1)) * rows + row;
            asm volatile("" : "+r"(index[i]));
        }
    }
};

// What the lanes of a warp that have the same columns have merged of theirs, relative to a maximum of them all. A
// thread has its loads behind one another, those first that the others wait for, and then whatever waits for one of
// them.
template <class Team, bool F16, int Count>
__device__ __forceinline__ Merged<kLaneElements> merge_share(
    const FmhaParams& params, Flight<Team, Count>& flight, const PartInput<F16, Team::kHeadDim, Team::kGroup>& input) {
    Merged<kLaneElements> merged;
    while (true) {
        float maxima[Count], sums[Count];
        Part<F16> parts[Count];
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            maxima[i] = params.partial_max[flight.index[i]];
        }
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            sums[i] = params.partial_sum[flight.index[i]];
        }
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            parts[i].load(input, flight.index[i]);
        }
        float max = merged.max;
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            maxima[i] = flight.split(i) < flight.splits(params) ? maxima[i] : -kInfinity;
            max = fmaxf(max, maxima[i]);
        }
#pragma unroll
        for (int distance = 16; distance >= Team::kLanes; distance /= 2) {
            max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, distance));
        }
        const float shrink = split_weight(merged.max, max);
        float weights[Count];
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            weights[i] = split_weight(maxima[i], max);
        }
        merged.max = max;
        merged.sum *= shrink;
#pragma unroll
        for (int i = 0; i < kLaneElements; ++i) {
            merged.o[i] *= shrink;
        }
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            if (weights[i] != 0.0f) {  // whatever the part holds
                merged.sum = fmaf(sums[i], weights[i], merged.sum);
                parts[i].add_to(merged.o, weights[i]);
            }
        }
        flight.begin += Team::kParts * Count;
        if (flight.begin >= flight.splits(params)) {
            return merged;
        }
        flight.find(flight.splits(params));
    }
}

// The lanes of a warp that have the same columns meet: each adds up kOwn of them, of all, and the sum. `column` becomes
// the first of these.
template <class Team>
__device__ __forceinline__ Merged<Team::kOwn> meet_in_warp(const Merged<kLaneElements>& merged, int& column) {
    float sum = merged.sum, o[kLaneElements];
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
        o[i] = merged.o[i];
    }
    int elements = kLaneElements;
#pragma unroll
    for (int distance = 16; distance >= Team::kLanes; distance /= 2) {
        elements /= 2;
        const bool upper = threadIdx.x & distance;
        column += upper ? elements : 0;
        float others[1 + kLaneElements / 2];  // which the other lane has of what this one keeps
        others[0] = __shfl_xor_sync(0xffffffffu, sum, distance);
#pragma unroll
        for (int i = 0; i < elements; ++i) {
            others[1 + i] = __shfl_xor_sync(0xffffffffu, upper ? o[i] : o[elements + i], distance);
        }
        sum += others[0];
#pragma unroll
        for (int i = 0; i < elements; ++i) {
            o[i] = (upper ? o[elements + i] : o[i]) + others[1 + i];
        }
    }
    Merged<Team::kOwn> own{merged.max, sum};
#pragma unroll
    for (int i = 0; i < Team::kOwn; ++i) {
        own.o[i] = o[i];
    }
    return own;
}

// The warps of a team meet, in each of them, in order.
template <class Team>
__device__ __forceinline__ Merged<Team::kOwn> meet_in_team(const Merged<Team::kOwn>& merged) {
    static_assert(Team::kOwn == 1);
    __shared__ float shares[3][Team::kWarps][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    shares[0][warp][lane] = merged.max;
    shares[1][warp][lane] = merged.sum;
    shares[2][warp][lane] = merged.o[0];
    __syncthreads();
    float all[3][Team::kWarps];
#pragma unroll
    for (int what = 0; what < 3; ++what) {
#pragma unroll
        for (int i = 0; i < Team::kWarps; ++i) {
            all[what][i] = shares[what][i][lane];
        }
    }
    Merged<Team::kOwn> met;
#pragma unroll
    for (int i = 0; i < Team::kWarps; ++i) {
        met.max = fmaxf(met.max, all[0][i]);
    }
#pragma unroll
    for (int i = 0; i < Team::kWarps; ++i) {
        const float weight = split_weight(all[0][i], met.max);
        if (weight != 0.0f) {  // whatever the warp's splits hold
            met.sum = fmaf(all[1][i], weight, met.sum);
            met.o[0] = fmaf(all[2][i], weight, met.o[0]);
        }
    }
    return met;
}

// Element `column` of row `stored` of O, and those behind it.
template <int Elements>
__device__ __forceinline__ void store_few(const FmhaParams& params, int64_t offset, const float (&values)[Elements]) {
    if (!(params.flags & kFmhaOutputBf16)) {
        float* const o = static_cast<float*>(params.o) + offset;
        if constexpr (Elements >= 4) {
            store_floats(o, values);
        } else {
#pragma unroll
            for (int i = 0; i < Elements; ++i) {
                o[i] = values[i];
            }
        }
        return;
    }
    uint16_t* const o = static_cast<uint16_t*>(params.o) + offset;
    if constexpr (Elements == 1) {
        o[0] = uint16_t(ptx::pack_bf16x2(values[0], 0.0f));
    } else {
        uint32_t packed[Elements / 2];
#pragma unroll
        for (int i = 0; i < Elements / 2; ++i) {
            packed[i] = ptx::pack_bf16x2(values[2 * i], values[2 * i + 1]);
        }
        if constexpr (Elements == 2) {
            *reinterpret_cast<uint32_t*>(o) = packed[0];
        } else if constexpr (Elements == 4) {
            *reinterpret_cast<uint2*>(o) = make_uint2(packed[0], packed[1]);
        } else {
            *reinterpret_cast<uint4*>(o) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
        }
    }
}

// With balanced splits, the parts of a row of the plane, as the forward kernel has told them; false where there is one,
// whose row has its result already. Parts of a plane are kv_heads apart.
template <class Flight>
__device__ __forceinline__ bool find_parts(const FmhaParams& params, int own, int rows, Flight& flight) {
    const int2 share = reinterpret_cast<const int2*>(params.shares)[blockIdx.z];
    flight.rows = params.kv_heads * rows;
    flight.row = share.x * rows + own;
    flight.parts = share.y;
    flight.find(share.y);
    return share.y > 1;
}

// Row `own` of plane blockIdx.z, of a launch with kFmhaByHead or without.
template <class Team, bool ByHead, bool F16, int Count>
__device__ __forceinline__ void combine_row(const FmhaParams& params, int own, int rows) {
    const int thread = threadIdx.x % (Team::kWarps * 32);
    const int row = blockIdx.z * rows + own;
    int column = blockIdx.y * Team::kColumns + thread % Team::kLanes * kLaneElements;
    Flight<Team, Count> flight{int(params.batch) * rows, row, 0, thread / Team::kLanes};
    flight.find(params.splits);
    const PartInput<F16, Team::kHeadDim, Team::kGroup> input(params, column);
    ptx::wait_for_primary();
    int64_t stored = row;
    int head = own % params.heads;
    if constexpr (ByHead) {
        const Plane plane = plane_of(params, blockIdx.z);
        if (own >= queries_of(params, plane.entry) * params.heads) {
            return;
        }
        stored = stored_row(params, plane, own);
        head = query_head(params, plane, own);
        if (balanced(params) && !find_parts(params, own, rows, flight)) {
            return;
        }
    }
    const auto share = merge_share<Team, F16>(params, flight, input);
    Merged<Team::kOwn> merged = meet_in_warp<Team>(share, column);
    if constexpr (Team::kWarps > 1) {
        merged = meet_in_team<Team>(merged);
    }
    if (thread < 32) {
        const float factor = output_factor(params, head, merged.max, merged.sum);
#pragma unroll
        for (int i = 0; i < Team::kOwn; ++i) {
            merged.o[i] *= factor;
        }
        store_few(params, stored * Team::kHeadDim + column, merged.o);
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
    ptx::launch_dependents();
    if (own >= rows) {
        return;
    }
    // What is in flight of a split that is not there takes as long as another one's.
    if (!(params.flags & kFmhaPartialF16)) {
        combine_row<Team, ByHead, false, Team::kInFlightF32>(params, own, rows);
    } else if (Team::kWarps == 1 && !balanced(params) && params.splits <= 2 * Team::kParts) {
        combine_row<Team, ByHead, true, 2>(params, own, rows);
    } else if (Team::kWarps == 1 && !balanced(params) && params.splits <= 4 * Team::kParts) {
        combine_row<Team, ByHead, true, 4>(params, own, rows);
    } else {
        combine_row<Team, ByHead, true, Team::kInFlightF16>(params, own, rows);
    }
}

}  // namespace fmha
