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

// Issues K of the first tile, where it is known at once, then Q. False: K was not loaded, since other CTAs share the
// loads, a window decides which tile is the first, or that one has a tail to clear or is not dense.
template <class T>
__device__ __forceinline__ bool load_first(const FmhaParams& params, SharedMap<T> shared, int width) {
    const int batch = blockIdx.z;
    const int length = params.kv_lens ? params.kv_lens[batch] : params.s_k;
    const Share tiles(ceil_div(length, T::kKeys), blockIdx.y, params.splits);
    const int begin = tiles.begin * T::kKeys;
    const bool tail = begin + T::kKeys > length && length < params.s_k && params.flags & kFmhaSharedKv;
    const bool known = width == 1 && !windowed(params) && tiles.begin < tiles.end && !tail;
    if (ptx::elect_one()) {
        if (known) {
#pragma unroll 1
            for (int unit = 0; unit < T::kUnits; ++unit) {
                ptx::mbarrier_arrive_expect_tx(shared.full(unit), T::kUnitBytes);
#pragma unroll
                for (int position = 0; position < T::kBoxes; ++position) {
                    ptx::tma_tile_3d(shared.slot(unit) + position * T::kBoxBytes, params.k, shared.full(unit),
                                     T::box(unit, position) * 64, begin, batch);
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
    return known;
}

}  // namespace fmha::sm90
