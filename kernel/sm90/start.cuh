// How a CTA begins: its barriers, and the first loads on their way before anything else is looked at.
//
// A launch finds its instruction cache cold, and what a thread has to run through before it issues a load counts double.
#pragma once

#include "clocks.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/warp.cuh"
#include "ptx/control.cuh"
#include "ptx/tma.cuh"
#include "tiles.cuh"
#include "traits.cuh"

namespace fmha::sm90 {

// By one thread, in a row: Hopper's barrier instructions take their address from a uniform register, and a lane each
// would take turns at 80 cycles. A full barrier has one arrival, the producer's; an empty one an arrival from each
// consumer warp of every CTA that shares the loads; what column groups hand over, one from each warp of the group.
template <class T, int First, int End>
__device__ __forceinline__ void init_barriers(SharedMap<T> shared, int width) {
    const int readers = 4 * T::kConsumers * (T::kShares ? width : 1);
#pragma unroll
    for (int i = First; i < End; ++i) {
        const bool empty = i >= T::kEmpty && i < T::kTail;
        ptx::mbarrier_init(shared.barrier(i), empty ? readers : i < T::kHanded ? 1 : 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    ptx::fence_proxy_async();
}

// Q's barrier and those of the first tile's K: the producer warp's own, which another warp does not wait for.
template <class T>
constexpr int kFirstBarriers = T::kFull + T::kUnits;

// The first tile of a CTA, if it is a dense one of `length` keys that can be loaded as it is: no other CTA shares the
// loads, no window decides which tile is the first, and it has no tail to clear.
template <class T>
struct FirstTile {
    int begin;
    int end;  // of all its dense tiles
    bool known;

    __device__ FirstTile(const FmhaParams& params, int width, int length) {
        const Share tiles(ceil_div(length, T::kKeys), blockIdx.y, params.splits);
        begin = tiles.begin * T::kKeys;
        end = tiles.end * T::kKeys;
        const bool tail = begin + T::kKeys > length && length < params.s_k && params.flags & kFmhaSharedKv;
        known = width == 1 && !windowed(params) && begin < end && !tail;
    }
};

#ifndef FMHA_PF
#define FMHA_PF 1
#endif

// Into L2, before the grid before this one is done.
template <class T>
__device__ __forceinline__ void prefetch_first(const FmhaParams& params, const FirstTile<T>& first) {
    if (!first.known || !ptx::elect_one()) {
        return;
    }
    const int batch = blockIdx.z;
#pragma unroll 1
    for (int begin = first.begin; begin < min(first.end, first.begin + FMHA_PF * T::kKeys); begin += T::kKeys) {
#pragma unroll 1
        for (int column = 0; column < T::kHeadDim; column += 64) {
            ptx::tma_prefetch_3d(params.k, column, begin, batch);
            if (begin == first.begin) {
                ptx::tma_prefetch_3d(params.q, column, blockIdx.x * T::kRows, batch);
            }
            if (!(params.flags & kFmhaSharedKv)) {
                ptx::tma_prefetch_3d(params.v, column, begin, batch);
            }
        }
    }
}

// Issues K of the first tile, if it is known, then Q.
template <class T>
__device__ __forceinline__ void load_first(const FmhaParams& params, SharedMap<T> shared, const FirstTile<T>& first) {
    if (ptx::elect_one()) {
        const int batch = blockIdx.z;
        if (first.known) {
#pragma unroll 1
            for (int unit = 0; unit < T::kUnits; ++unit) {
                ptx::mbarrier_arrive_expect_tx(shared.full(unit), T::kUnitBytes);
#pragma unroll
                for (int position = 0; position < T::kBoxes; ++position) {
                    ptx::tma_tile_3d(shared.slot(unit) + position * T::kBoxBytes, params.k, shared.full(unit),
                                     T::box(unit, position) * 64, first.begin, batch);
                }
            }
            stamp<kFirstKeyIssued>(true);
        }
        ptx::mbarrier_arrive_expect_tx(shared.query_full(), T::kRows * T::kHeadDim * 2);
#pragma unroll 1
        for (int box = 0; box < T::kHeadDim / 64; ++box) {
            ptx::tma_tile_3d(shared.query(box), params.q, shared.query_full(), box * 64, blockIdx.x * T::kRows, batch);
        }
        stamp<kQueryIssued>(true);
    }
    __syncwarp();
}

}  // namespace fmha::sm90
