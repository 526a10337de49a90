// A consumer warpgroup: from its place to its rows in memory.
#pragma once

#include "alternate.cuh"
#include "clocks.cuh"
#include "epilogue.cuh"
#include "walking.cuh"

namespace fmha::sm90 {

// The result of the rows whose products are done, or their part of it.
template <class T>
__device__ __forceinline__ void finish_rows(Consumer<T>& consumer, const Place<T>& place, const Target<T>& target) {
    stamp<kLastProduct>(threadIdx.x == 0);
    float correction[2];
    finish_sums(consumer, correction);
    if (target.partial) {
        store_part(consumer, correction, target);
    } else {
        store_result(consumer, correction, target);
    }
    stamp<kStored>(threadIdx.x == 0);
    __syncwarp();
}

// Row tile after row tile, as the producer tells them. Where the next Q lands before the last product is done, the next
// scores are under way while rows are stored; the loop has one way out, and a wait on it, since ptxas adds waits
// wherever it cannot see one behind every product. A Q of 64 KiB takes longer, and rows are stored meanwhile. Where
// they go is found out while the last product is under way.
template <class T>
__device__ __forceinline__ void consume_walking(Consumer<T>& consumer, Place<T>& place, Cursor<T>& cursor) {
    const FmhaParams& params = consumer.params;
    Begun<T> begun(consumer, place, cursor);
    int turn = 0;
#pragma unroll 1
    while (true) {
        Target<T> target;
        Place<T> next = place;
        run_walking(consumer, begun, cursor, [&] { target = Target<T>(params, place); });
        if constexpr (!T::kPolicy.begins_ahead) {
            finish_rows<T>(consumer, place, target);
        }
        ++turn;
        ptx::mbarrier_wait(consumer.shared.told(), turn % 2);
        next = Place<T>(params, consumer.shared, turn);
        const bool more = next.batch >= 0;
        if (more) {
            ptx::mbarrier_wait(consumer.shared.query_full(), turn % 2);
        }
        begun = Begun<T>(consumer, next, cursor, more);
        if constexpr (T::kPolicy.begins_ahead) {
            finish_rows<T>(consumer, place, target);
        }
        if (!more) {
            ptx::wgmma_wait<0>();
            ptx::pin(consumer.s);
            return;
        }
        place = next;
        consumer.begin(Rows<T>(params, place, consumer.row_group));
    }
}

// The one row tile of a CTA that has its own.
template <class T>
__device__ __forceinline__ void consume_one(Consumer<T>& consumer, Place<T>& place, Cursor<T>& cursor) {
    if constexpr (T::kPolicy.loop == Loop::kAlternating) {
        run_alternating(consumer);
    } else if constexpr (T::kPolicy.loop == Loop::kOverlapped) {
        KeyTiles<T> tiles(place, consumer.params);
        run_overlapped(consumer, tiles, cursor);
    } else {
        run_in_turn(consumer, cursor);
    }
    finish_rows<T>(consumer, place, Target<T>(consumer.params, place));
}

// Of the CTA or, where CTAs walk, its first row tile, as the producer tells.
template <class T>
__device__ __forceinline__ Place<T> first_place(const FmhaParams& params, const SharedMap<T>& shared) {
    if constexpr (T::kWalks) {
        ptx::named_barrier_sync(kStartBarrier, T::kConsumerThreads + 64);
        ptx::mbarrier_wait(shared.told(), 0);
        return {params, shared, 0};
    } else {
        return {params, Walk<T>(params)};
    }
}

template <class T>
__device__ __forceinline__ void consume(const FmhaParams& params, SharedMap<T> shared, int group) {
    ptx::wait_for_primary();
    Place<T> place = first_place(params, shared);
    if (T::kWalks && place.batch < 0) {
        return;
    }
    if constexpr (T::kPolicy.turns) {
        if (group + 1 == T::kLaunch.row_groups) {
            ptx::named_barrier_arrive(kTurnBarrier, 256);  // the first group begins
        }
    }
    Cursor<T> cursor;
    Consumer<T> consumer(params, shared, place, group);
    if constexpr (!T::kWalks) {
        ptx::named_barrier_sync(kStartBarrier, T::kConsumerThreads + 64);
    }
    stamp<kConsumersMet>(threadIdx.x == 0);
    ptx::mbarrier_wait(shared.query_full(), 0);  // also without a tile: the copy must land first
    stamp<kQueryThere>(threadIdx.x == 0);
    if constexpr (T::kWalks) {
        consume_walking<T>(consumer, place, cursor);
    } else {
        consume_one<T>(consumer, place, cursor);
    }
    if constexpr (T::kPolicy.turns) {
        if (group == 0) {
            ptx::named_barrier_sync(kTurnBarrier, 256);
        }
    }
}

}  // namespace fmha::sm90
