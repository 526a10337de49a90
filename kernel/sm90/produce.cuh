// The producer warpgroup: what loads Q and the ring, and what prepares.
#pragma once

#include "common/ptx/tma.cuh"
#include "order.cuh"
#include "ring_order.cuh"
#include "start.cuh"

namespace fmha::sm90 {

// The next row tile, the CTA's one of number `turn`, which is told the consumers; by one of `all`, where CTAs draw.
template <class T>
__device__ __forceinline__ Place<T> find_next(const FmhaParams& params, const SharedMap<T>& shared, Walk<T>& walk,
                                              BalancedWalk<T>& balance, int turn, int all) {
    if (balanced<T>(params)) {
        balance.advance(params);
        walk.go_to(balance);
    } else if ((T::kPolicy.row_tiles == RowTiles::kByLength)) {
        return take_next(params, shared, turn, Walk<T>::draws_packed(params) ? turn : turn + 1);
    } else {
        const int ctas = walk.ctas();
        walk.go_to(params, ctas < all ? draw(params, ctas, all) : all);
    }
    const Place<T> place(params, walk);
    if (ptx::elect_one()) {
        place.tell(shared, turn);
    }
    __syncwarp();
    return place;
}

// The row tiles behind the first. Each is drawn once the loads of the one before are under way, late enough for the
// CTAs that have most to do to draw least. K of the first tile comes before Q, which waits until the consumers are done
// with the Q before.
template <class T>
__device__ __forceinline__ void produce_further(const FmhaParams& params, SharedMap<T> shared, Walk<T>& walk,
                                                BalancedWalk<T>& balance, const Producer<T>& first) {
    Cursor<T> cursor = first.cursor;
    int tails = first.tails;
    const int all = (T::kPolicy.row_tiles == RowTiles::kByLength) ? 0 : walk.all(params);
#pragma unroll 1
    while (true) {
        const int before = kPaged ? tails : walk.turn;
        if constexpr (kPaged) {
            tails = (tails & -Producer<T>::kTailStep) + (tails + 1) % T::kPlaces;
        } else {
            ++walk.turn;
        }
        const uint32_t parity = before % 2;
        const Place<T> place = find_next(params, shared, walk, balance, before % T::kPlaces + 1, all);
        if (place.batch < 0) {
            if (ptx::elect_one()) {
                ptx::mbarrier_wait(shared.query_empty(), parity);
                ptx::mbarrier_arrive(shared.told());
            }
            __syncwarp();
            end_tails(shared, tails);
            return;
        }
        QueryBoxes<T> query(params, place.plane, place.own);  // order_role's are fetched
        if (!(T::kPolicy.row_tiles == RowTiles::kByLength) || balanced<T>(params)) {
            query.prefetch();
        }
        Loads<T> loads(params, shared, place, cursor, tails);
        if (loads.more && loads.keys.tile.begin < end_of_run(loads.producer, loads.stream, loads.keys.tile.begin)) {
            loads.producer.load_units(false, loads.keys.tile.begin, 0, T::kUnits);
            loads.ahead = true;
        }
        if (T::kPolicy.asks_early && is_short(place)) {
            ask_for_next(params, shared);
            loads.producer.tails |= Producer<T>::kAsked;
        }
        if (ptx::elect_one()) {
            ptx::mbarrier_wait(shared.query_empty(), parity);
            expect_query(params, shared);
        }
        __syncwarp();
        query.load(shared);
        if (ptx::elect_one()) {
            ptx::mbarrier_arrive(shared.told());
        }
        __syncwarp();
        producer_role<T>(params, loads, [&] {
            if (!T::kPolicy.asks_early || !(loads.producer.tails & Producer<T>::kAsked)) {
                ask_for_next(params, shared);
            }
        });
        cursor = loads.producer.cursor;
        tails = loads.producer.tails;
    }
}

// K of the first tile and Q first, then the walk over all tiles is set up.
template <class T>
__device__ __forceinline__ void produce(const FmhaParams& params, SharedMap<T> shared, int ring) {
    Walk<T> walk(params);
    bool ahead = false;
    if (ring == 0) {
        ahead = load_own(params, shared, walk, begin(params, shared, walk)).in(ring);
        ptx::named_barrier_arrive(kStartBarrier, T::kConsumerThreads + 64);
    } else {
        ptx::wait_for_primary();
        const int length = length_of<T>(params, entry_of(params, blockIdx.z), walk.row_tile);
        ahead = FirstTile<T>(params, walk, length).in(ring);
    }
    const Place<T> place(params, walk);
    Loads<T> loads(params, shared, place, ring, ahead);
    stamp<kLoadsReady>(ring == 0 && threadIdx.x % 32 == 0);
    ptx::named_barrier_sync(kRingBarrier, 32 * (T::kRings + 1));
    if constexpr (T::kRings == 1) {
        producer_role<T>(params, loads, [] {});
    } else {
        group_producer_role<T>(params, loads, ring);
    }
    __syncwarp();
}

// The same where CTAs walk, for the first row tile and then all others.
template <class T>
__device__ __forceinline__ void produce_all(const FmhaParams& params, SharedMap<T> shared) {
    Walk<T> walk(params);
    BalancedWalk<T> balance;
    FirstTile<T> first = begin(params, shared, walk);
    const bool looked_for = balanced<T>(params) || Walk<T>::draws_packed(params);
    if (!looked_for) {
        first = load_own(params, shared, walk, first);
    }
    const Place<T> place = looked_for ? find_first(params, shared, walk, balance) : Place<T>(params, walk);
    if (looked_for && place.batch >= 0) {
        first = FirstTile<T>(params, walk, place.length);
        load_first(params, shared, first, place.plane, place.own);
    }
    if (ptx::elect_one()) {
        if (!Walk<T>::draws_packed(params)) {
            place.tell(shared, 0);
        }
        ptx::mbarrier_arrive(shared.told());
    }
    __syncwarp();
    ptx::named_barrier_arrive(kStartBarrier, T::kConsumerThreads + 64);
    if (place.batch < 0) {
        ptx::named_barrier_sync(kRingBarrier, 32 * (T::kRings + 1));
        end_tails(shared, 0);
        return;
    }
    Loads<T> loads(params, shared, place, 0, first.in(0));
    stamp<kLoadsReady>(threadIdx.x % 32 == 0);
    ptx::named_barrier_sync(kRingBarrier, 32 * (T::kRings + 1));
    if ((T::kPolicy.row_tiles == RowTiles::kByLength) && !looked_for) {
        ptx::named_barrier_sync(kOrderBarrier, 64);
    }
    producer_role<T>(params, loads, [&] { ask_for_next(params, shared); });
    produce_further<T>(params, shared, walk, balance, loads.producer);
    __syncwarp();
}

// The other barriers, meanwhile.
template <class T>
__device__ __forceinline__ void prepare(const FmhaParams& params, SharedMap<T> shared) {
    if (ptx::elect_one()) {
        if (params.s_k > 0 && !(params.flags & kFmhaSharedKv)) {
            ptx::prefetch_tensor_map(params.v);
        }
        init_barriers<T, kFirstBarriers<T>, T::template kFirst<Barrier::kNextFull>>(shared);
    }
    __syncwarp();
    ptx::named_barrier_arrive(kRingBarrier, 32 * (T::kRings + 1));
    if constexpr (kKvHeads) {
        clear_idle_rows<T>(params, shared);
    }
    ptx::named_barrier_arrive(kStartBarrier, T::kConsumerThreads + 64);
    ptx::wait_for_primary();
    ptx::launch_dependents();
}

}  // namespace fmha::sm90
