// How a CTA begins: its barriers, and the first loads on their way before anything else is looked at.
//
// A launch finds its instruction cache cold, and what a thread has to run through before it issues a load counts
// double.
#pragma once

#include "boxes.cuh"
#include "clocks.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/warp.cuh"
#include "place.cuh"
#include "ptx/control.cuh"
#include "ptx/tma.cuh"
#include "tiles.cuh"

namespace fmha::sm90 {

// By one thread, in a row: Hopper's barrier instructions take their address from a uniform register, and a lane each
// would take turns at 80 cycles.
template <class T, int First, int End>
__device__ __forceinline__ void init_each(SharedMap<T> shared) {
    if constexpr (First < End) {
        constexpr Arrivals kKind = T::template kArrivals<First>;
        constexpr int kReaders = 4 * T::kConsumers / T::kRings;
        const int arrivals = kKind == Arrivals::kReaders ? kReaders : kKind == Arrivals::kOne ? 1 : 128;
        ptx::mbarrier_init(shared.barrier(First), arrivals);
        init_each<T, First + 1, End>(shared);
    }
}

template <class T, int First, int End>
__device__ __forceinline__ void init_barriers(SharedMap<T> shared) {
    init_each<T, First, End>(shared);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    ptx::fence_proxy_async();
}

// Q's barrier and those of the first tile's K: the producer warp's own, which another warp does not wait for.
template <class T>
constexpr int kFirstBarriers = T::template kFirst<Barrier::kFull> + (T::kRings == 1 ? T::kUnits : T::kRingSlots + 1);

// The first tile of a CTA, if it is a dense one of `length` keys that can be loaded as it is: no window decides which
// tile is the first, and neither K nor V has a tail to clear.
template <class T>
struct FirstTile {
    int key;
    bool known;
    bool one_load;

    __device__ FirstTile(const FmhaParams& params, const Walk<T>& walk, int length) {
        const Share tiles = walk.tiles.share(params, 0, ceil_div(length, T::kKeys));
        one_load = params.flags & kFmhaSharedKv;
        key = tiles.begin * T::kKeys;
        const bool tail = key + T::kKeys > length && (kPaged || length < params.s_k);
        known = !windowed(params) && tiles.begin < tiles.end && !tail;
    }

    // K's units lie in the first ring, or with K = V one in each.
    __device__ int slot(int unit) const { return T::kRings == 2 && one_load ? unit * T::kRingSlots : unit; }

    // Whether this ring has some of it.
    __device__ bool in(int ring) const { return known && (ring == 0 || one_load); }
};

// What query_full waits for beside this arrival. By one thread.
template <class T>
__device__ __forceinline__ void expect_query(const FmhaParams& params, const SharedMap<T>& shared) {
    ptx::mbarrier_arrive_expect_tx(shared.query_full(), tile_rows<T>(params) * T::kHeadDim * 2);
}

// Rows that no box of Q fills are zeros: the tensor core reads them with the others. By the whole warp.
template <class T>
__device__ __forceinline__ void clear_idle_rows(const FmhaParams& params, SharedMap<T> shared) {
    constexpr int kVectors = T::kHeadDim / 8;
#pragma unroll 1
    for (int i = tile_rows<T>(params) * kVectors + threadIdx.x % 32; i < T::kRows * kVectors; i += 32) {
        const int vector = i % kVectors;
        ptx::store_shared_v4(shared.query(vector / 8) + i / kVectors * 128 + vector % 8 * 16, 0u, 0u, 0u, 0u);
    }
    ptx::fence_proxy_async();
    __syncwarp();
}

// K of the first tile, which has no tail and no window. By the whole warp.
template <class T>
__device__ __forceinline__ void load_first_boxes(const FmhaParams& params, SharedMap<T> shared,
                                                 const FirstTile<T>& first, Plane plane) {
    BoxLoader<T> loader(params, plane, {first.key, first.key + T::kKeys});
    const BoxPlace place = loader.place_of(first.key);
#pragma unroll 1
    for (int unit = 0; unit < T::kUnits; ++unit) {
        const int slot = first.slot(unit);
        if (ptx::elect_one()) {
            ptx::mbarrier_arrive_expect_tx(shared.full(slot), T::kUnitBytes);
        }
        __syncwarp();
        loader.load(params.k, shared.slot(slot), shared.full(slot), unit, place);
    }
    stamp<kFirstKeyIssued>(threadIdx.x % 32 == 0);
}

// Issues K of the first tile, if it is known, then Q, which begins with row `own` of the plane.
template <class T>
__device__ __forceinline__ void load_first(const FmhaParams& params, SharedMap<T> shared, const FirstTile<T>& first,
                                           Plane plane, int own) {
    if constexpr (kPaged) {
        if (first.known) {
            load_first_boxes<T>(params, shared, first, plane);
        }
    }
    if (ptx::elect_one()) {
        if (!kPaged && first.known) {
#pragma unroll 1
            for (int unit = 0; unit < T::kUnits; ++unit) {
                const int slot = first.slot(unit);
                ptx::mbarrier_arrive_expect_tx(shared.full(slot), T::kUnitBytes);
#pragma unroll
                for (int position = 0; position < T::kBoxes; ++position) {
                    load_box(params, params.k, shared.slot(slot) + position * T::kBoxBytes, shared.full(slot),
                             (unit * T::kBoxes + position) * 64, first.key, plane);
                }
            }
            stamp<kFirstKeyIssued>(true);
        }
        expect_query(params, shared);
    }
    __syncwarp();
    QueryBoxes<T>(params, plane, own).load(shared);
    stamp<kQueryIssued>(threadIdx.x % 32 == 0);
}

// The CTA's row tile `turn`, the one of number `found` that order_role has found.
template <class T>
__device__ __forceinline__ Place<T> take_next(const FmhaParams& params, const SharedMap<T>& shared, int turn,
                                              int found) {
    ptx::mbarrier_wait(shared.next_full(), found % 2);
    return {params, shared, turn};
}

// By the first producer warp, before anything else. What follows from the parameters alone comes before the wait for
// the grid before this one.
template <class T>
__device__ __forceinline__ FirstTile<T> begin(const FmhaParams& params, SharedMap<T> shared, const Walk<T>& walk) {
    const FirstTile<T> first(params, walk, params.s_k);
    if (ptx::elect_one()) {
        if (params.s_k > 0) {
            ptx::prefetch_tensor_map(params.k);
        }
        ptx::prefetch_tensor_map(params.q);
        init_barriers<T, 0, kFirstBarriers<T>>(shared);
    }
    __syncwarp();
    stamp<kBarriersReady>(threadIdx.x % 32 == 0);
    asm volatile("" ::"r"(first.key), "r"(int(first.known)));  // else ptxas computes it where it is used
    ptx::wait_for_primary();
    stamp<kGridBeforeDone>(threadIdx.x % 32 == 0);
    return first;
}

// K and Q of the first row tile, where it follows from the CTA's place in the grid; the tile, whose K was loaded if it
// is known.
template <class T>
__device__ __forceinline__ FirstTile<T> load_own(const FmhaParams& params, SharedMap<T> shared, const Walk<T>& walk,
                                                 FirstTile<T> first) {
    const Plane plane = plane_of(params, walk.batch);
    if constexpr (kPaged) {
        first = FirstTile<T>(params, walk, length_of<T>(params, plane.entry, walk.row_tile));
    } else if (params.kv_lens) {
        first = FirstTile<T>(params, walk, params.kv_lens[plane.entry]);
    }
    const int own = walk.first_row(params, queries_of(params, plane.entry) * params.heads);
    load_first<T>(params, shared, first, plane, own);
    return first;
}

// Where it does not: which one that is.
template <class T>
__device__ __forceinline__ Place<T> find_first(const FmhaParams& params, SharedMap<T> shared, Walk<T>& walk,
                                               BalancedWalk<T>& balance) {
    if (balanced<T>(params)) {
        balance.start(params);
        walk.go_to(balance);
        return {params, walk};
    }
    ptx::named_barrier_sync(kOrderBarrier, 64);
    return take_next(params, shared, 0, 0);
}

}  // namespace fmha::sm90
