// Who says which row tile is next, where CTAs draw them.
#pragma once

#include "boxes.cuh"
#include "common/ptx/mbarrier.cuh"
#include "consumer.cuh"
#include "packed.cuh"
#include "place.cuh"
#include "start.cuh"

namespace fmha::sm90 {

constexpr int kShortTiles = 2;  // of keys, that a row tile has at most

// The place of the next row tile in the order of all; by the whole warp. Each CTA draws until none is left, which makes
// as many draws as there are row tiles: the last one wraps the count to 0.
__device__ __forceinline__ int draw(const FmhaParams& params, int ctas, int all) {
    unsigned drawn = 0;
    if (threadIdx.x % 32 == 0) {
        drawn = atomicInc(params.drawn, unsigned(all) - 1);
    }
    return ctas + int(__shfl_sync(0xffffffffu, drawn, 0));
}

// What the producer takes by take_next, and the consumers once it has told them. By the whole warp.
template <class T>
__device__ __forceinline__ Place<T> tell_next(const FmhaParams& params, const SharedMap<T>& shared, const Walk<T>& walk,
                                              int turn) {
    const Place<T> place(params, walk);
    if (ptx::elect_one()) {
        place.tell(shared, turn);
        ptx::mbarrier_arrive(shared.next_full());
    }
    __syncwarp();
    return place;
}

// In kernels that know packed orders, where finding what a number means takes as long as a short row tile: the warp
// that draws and looks, which keeps in registers how far it has come, finds the place and has the next Q fetched. It is
// asked before the last V of a row tile is loaded, and no earlier, though there be plenty left: CTAs that have most to
// do are to draw least, and those that share K and V to read them together.
template <class T>
__device__ __forceinline__ void order_role(const FmhaParams& params, const SharedMap<T>& shared) {
    if (balanced<T>(params)) {
        return;
    }
    if (ptx::elect_one()) {
        init_barriers<T, T::template kFirst<Barrier::kNextFull>, T::kBarriers>(shared);
    }
    __syncwarp();
    ptx::named_barrier_arrive(kOrderBarrier, 64);
    ptx::wait_for_primary();  // which may write the lengths
    Walk<T> walk(params);
    PackedOrder order{0, 0};
    if (Walk<T>::draws_packed(params)) {  // the first one, too
        order = walk.packed_order(params);
        walk.go_to(params, order, blockIdx.x);
        tell_next(params, shared, walk, 0);
        order.count(params, tile_rows<T>(params));
    } else {
        order.all = walk.all(params);
    }
    int turn = 0;
#pragma unroll 1
    while (walk.row_tile >= 0) {
        ptx::mbarrier_wait(shared.next_free(), turn % 2);
        ++turn;
        const int index = walk.ctas() < order.all ? draw(params, walk.ctas(), order.all) : order.all;
        if (Walk<T>::draws_packed(params)) {
            walk.go_to(params, order, index);
        } else {
            walk.go_to(params, index);
        }
        const Place<T> place = tell_next(params, shared, walk, turn);
        if (walk.row_tile >= 0) {
            QueryBoxes<T>(params, place.plane, place.own).prefetch();
        }
    }
}

// For the next one, where that warp finds it. By the whole producer warp.
template <class T>
__device__ __forceinline__ void ask_for_next(const FmhaParams& params, const SharedMap<T>& shared) {
    if ((T::kPolicy.row_tiles == RowTiles::kByLength) && !balanced<T>(params)) {
        if (ptx::elect_one()) {
            ptx::mbarrier_arrive(shared.next_free());
        }
        __syncwarp();
    }
}

// Whether the row tile behind this one is asked for before there is room for this one's Q: finding it takes as long as
// this one.
template <class T>
__device__ __forceinline__ bool is_short(const Place<T>& place) {
    return place.dense_end - place.dense <= kShortTiles * T::kKeys;
}

}  // namespace fmha::sm90
