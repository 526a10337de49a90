// The loop of CTAs that walk, of one row tile after another: prefill. The tensor core is busy with the other
// warpgroups, so only the maxima run beside a warpgroup's own product, and the exponentials in one block with P's
// conversion.
#pragma once

#include "rounds.cuh"

namespace fmha::sm90 {

// Those of a row tile of which S of the first is under way; where row groups take turns, each goes through those alone
// that it sees.
template <class T>
struct Begun : KeyTiles<T> {
    int unseen = 0;  // the CTA's tiles behind those

    // Q is there, `at` is the first tile's K. Not `wanted`: nothing is begun.
    __device__ __forceinline__ Begun(Consumer<T>& c, const Place<T>& place, const Cursor<T>& at, bool wanted = true)
        : KeyTiles<T>(place, c.params) {
        this->any = this->any && wanted;
        if (this->any) {
            Cursor<T> keys = at;
            c.issue_scores(keys);
            if constexpr (T::kPolicy.turns) {
                unseen = this->stream.leave_out(place.end_seen(c.params, c.row_group));
            }
        }
    }
};

// What a row group has of the CTA's tiles behind those that it sees: a turn each, and units of the ring. The first K of
// them comes before the last V that it reads, and went back with that turn.
template <class T>
__device__ __forceinline__ void pass_over_unseen(Consumer<T>& c, int unseen, bool one_load, Cursor<T>& at) {
#pragma unroll 1
    for (int left = unseen; left > 0; --left) {
        if (left < unseen) {
            c.wait_for_turn();
            c.pass_turn();
        }
        if (!one_load && left > 1) {
            c.pass_over(at);
        }
        c.pass_over(at);
    }
}

// Round j computes S_j and its maxima beside O += P_{j-1} V_{j-1}. The ring: K0, K1, V0, K2, V1, ...
// `meanwhile` is called while the last product is under way, or if there is none.
template <class T, class Meanwhile>
__device__ __forceinline__ void run_walking(Consumer<T>& c, Begun<T>& begun, Cursor<T>& at, Meanwhile meanwhile) {
    TileStream<T>& stream = begun.stream;
    if (!begun.any) {
        c.release_query();
        meanwhile();
        return;
    }
    Tile tile{};
    const bool one_load = c.params.flags & kFmhaSharedKv;
    Cursor<T> keys = at, values = at, key = at, value;
    float factor[2];
    typename Rows<T>::Entries valid;
    keys.advance(T::kUnits);
    bool more = stream.next(tile);
    finish_first<T>(c, begun, key, one_load, more);
    while (more) {
        const Tile current = tile;
        valid = c.rows.valid_entries(stream, current);
        key = keys;
        c.wait_for_turn();
        c.issue_scores(keys);
        values = one_load ? values : keys;
        value = values;
        c.issue_output(values, c.p);
        c.pass_turn();
        keys = one_load ? keys : values;
        more = stream.next(tile);
        ptx::wgmma_wait<1>();
        ptx::pin(c.s);
        if (!one_load) {
            c.template release<T::kUnits>(key);
        }
        if (!more) {
            c.release_query();
        }
        const bool shrinks = c.find_maxima(current, valid, factor);
        ptx::wgmma_wait<0>();
        c.pin_output();
        c.template release<T::kUnits>(value);
        c.rescale(factor, shrinks);
        c.exponentiate_scores();
        c.pack(c.p);
    }
    const bool more_of_others = T::kPolicy.turns && begun.unseen > 0;
    if (more_of_others) {
        c.wait_for_turn();
        if (!one_load) {
            c.pass_over(keys);
        }
    }
    value = values = one_load ? values : keys;
    c.issue_output(values, c.p);
    if (more_of_others) {
        c.pass_turn();
    }
    at = values;
    meanwhile();
    ptx::wgmma_wait<0>();
    c.pin_output();
    c.template release<T::kUnits>(value);  // a row tile may follow
    if constexpr (T::kPolicy.turns) {
        pass_over_unseen(c, begun.unseen, one_load, at);
    }
}

}  // namespace fmha::sm90
