// The order in which producers fill the rings.
//
// K and V of each tile, or where consumers overlap them K of each tile before V of the tile before it. With K = V only
// the K's, and the consumers read each twice.
#pragma once

#include "producer.cuh"

namespace fmha::sm90 {

// Where the dense tiles end of which none has a tail to clear: a run that a short loop loads, whose code stays in the
// instruction cache. What is around it takes a thousand cycles a tile, and consumers would wait for it.
template <class T>
__device__ __forceinline__ int end_of_run(const Producer<T>& producer, const TileStream<T>& stream, int begin) {
    const int last = stream.dense_end - T::kKeys;
    return last >= begin && producer.has_tail({last, 0, -1}, true) ? last : stream.dense_end;
}

// One call of load_tile, in a loop: the code is long, and a cold instruction cache slow. `before_last` is called once,
// before the last V is loaded, or at the end where there is none.
template <class T, class BeforeLast>
__device__ __forceinline__ void producer_role(const FmhaParams& params, Loads<T>& loads, BeforeLast before_last) {
    auto& [producer, stream, keys, more, ahead] = loads;
    typename Producer<T>::Load values{};  // whose K is loaded and V is due, unless its tile begins at -1
    values.tile.begin = -1;
    const bool one_load = params.flags & kFmhaSharedKv;
    bool value = false, called = false;
    if (more && !keys.tile.sparse()) {
        const int begin = keys.tile.begin, end = end_of_run(producer, stream, begin);
        if (begin < end) {
            int key = ahead ? begin + T::kKeys : begin, value_key = begin;
            value = ahead && !one_load && !T::kOverlaps;
#pragma unroll 1
            while (value || key < end) {
                producer.load_units(value, value ? value_key : key, 0, T::kUnits);
                (value ? value_key : key) += T::kKeys;
                value = !one_load && !value && (!T::kOverlaps || key > begin + T::kKeys);
            }
            if (T::kOverlaps && !one_load) {
                values.tile = {end - T::kKeys, 0, -1};
            }
            stream.dense = end;
            more = producer.next(stream, keys);
        }
    }
    while (more || values.tile.begin >= 0) {
        if (value ? values.tile.begin >= 0 : more) {
            typename Producer<T>::Load load = keys;
            if (value) {
                load = values;
                if (!more) {
                    before_last();
                    called = true;
                }
            }
            producer.load_tile(load, value);
        }
        if (T::kOverlaps ? value || one_load : !value) {
            values = keys;
            if (!more || one_load) {
                values.tile.begin = -1;
            }
            more = more && producer.next(stream, keys);
        }
        value = !value && !one_load;
    }
    if (!called) {
        before_last();
    }
}

// What comes of tile `turn` into the ring of one column group, as run_alternating reads it. Job 0: K of its own tiles,
// or with K = V its half of every tile. Then its half of V: 1, of the tile before one of its own, 2, of its own, and of
// the last one in any case.
__device__ __forceinline__ bool is_due(int job, bool own, int turn, bool last, bool one_load) {
    return one_load ? job == 0 : job == 0 ? own : job == 1 ? own && turn > 0 : own || last;
}

template <class T>
__device__ __forceinline__ void group_producer_role(const FmhaParams& params, Loads<T>& loads, int group) {
    auto& [producer, stream, tile, more, ahead] = loads;
    typename Producer<T>::Load before{};
    const bool one_load = params.flags & kFmhaSharedKv;
    int turn = 0;
    if (more && !tile.tile.sparse()) {
        int key = tile.tile.begin;
        const int end = end_of_run(producer, stream, key);
        if (key < end) {
            before.tile = {end - T::kKeys, 0, -1};
            stream.dense = end;
            more = producer.next(stream, tile);
            if (one_load && ahead) {
                key += T::kKeys;
                ++turn;
            }
#pragma unroll 1
            for (; one_load && key < end; key += T::kKeys, ++turn) {
                producer.load_units(false, key, group, group + 1);
            }
#pragma unroll 1
            for (; key < end; key += T::kKeys, ++turn) {
                const bool own = turn % 2 == group, last = !more && key + T::kKeys >= end;
#pragma unroll 1
                for (int job = 0; job < 3; ++job) {
                    if (is_due(job, own, turn, last, false) && !(ahead && turn == 0 && job == 0)) {
                        producer.load_units(job > 0, job == 1 ? key - T::kKeys : key, job == 0 ? 0 : group,
                                            job == 0 ? T::kUnits : group + 1);
                    }
                }
            }
        }
    }
    for (; more; ++turn) {
        typename Producer<T>::Load after = tile;
        more = producer.next(stream, after);
        const bool own = turn % 2 == group;
#pragma unroll 1
        for (int job = 0; job < 3; ++job) {
            if (!is_due(job, own, turn, !more, one_load)) {
                continue;
            }
            const bool keys = job == 0, half = one_load || !keys;
            typename Producer<T>::Load load = tile;
            if (job == 1) {
                load = before;
            }
            producer.load_tile(load, !keys, half ? group : 0, half ? group + 1 : T::kUnits);
        }
        before = tile;
        tile = after;
    }
}

}  // namespace fmha::sm90
