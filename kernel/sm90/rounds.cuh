// The loops of a consumer warpgroup over the tiles of its CTA. Each leaves O un-normalised, relative to the anchors of
// `state`, and `at` behind the slots that it has read. Every wait for a wgmma stands where all warps of the warpgroup
// pass: synccheck stopped a kernel in which the two sides of a warp's own branch had one each.
#pragma once

#include "clocks.cuh"
#include "consumer.cuh"

namespace fmha::sm90 {

// S_j, softmax, O += P_j V_j, behind which S_{j+1} waits in the tensor core's queue; what overlaps is the work of other
// warpgroups. The ring: K0, V0, K1, V1, ...
template <class T>
__device__ __forceinline__ void run_in_turn(Consumer<T>& c, Cursor<T>& at) {
    TileStream<T> stream = c.place.tiles(c.params);
    Tile tile{}, before{};
    if (!stream.next(tile)) {
        return;
    }
    const bool one_load = c.params.flags & kFmhaSharedKv;
    Cursor<T> key = at, value;
    typename Rows<T>::Entries valid = c.rows.valid_entries(stream, tile);
    c.issue_scores(at);
    ptx::wgmma_wait<0>();
    ptx::pin(c.s);
    stamp<kFirstScores>(threadIdx.x == 0);
    while (true) {
        if (one_load) {
            at = key;
        } else {
            c.template release<T::kUnits>(key, tile.sparse());
        }
        float factor[2];
        const bool shrinks = c.softmax(tile, valid, factor);
        c.rescale(factor, shrinks);
        c.pack(c.p);
        value = at;
        c.issue_output(at, c.p);
        before = tile;
        if (!stream.next(tile)) {
            break;
        }
        valid = c.rows.valid_entries(stream, tile);
        key = at;
        c.issue_scores(at);
        ptx::wgmma_wait<0>();
        ptx::pin(c.s);
        c.pin_output();
        c.template release<T::kUnits>(value, before.sparse());
    }
    ptx::wgmma_wait<0>();
    c.pin_output();
    // A CTA that shares loads may have tiles of its own still to gather into these slots.
    if (c.place.width > 1) {
        c.template release<T::kUnits>(value, before.sparse());
    }
}

// The key tiles of a row tile; where CTAs walk, S of the first is under way, and where row groups take turns, each
// walks those alone that it sees.
template <class T>
struct Begun {
    TileStream<T> stream;
    int unseen = 0;  // the CTA's tiles behind those
    Tile first{};
    bool any;

    // Q is there, `at` is the first tile's K. Not `wanted`: nothing is begun.
    __device__ __forceinline__ Begun(Consumer<T>& c, const Place<T>& place, const Cursor<T>& at, bool wanted = true)
        : stream(place.tiles(c.params)), any(stream.next(first) && wanted) {
        if (T::kWalks && any) {
            Cursor<T> keys = at;
            c.issue_scores(keys);
            if constexpr (T::kTurns) {
                unseen = stream.leave_out(place.end_seen(c.params, c.row_group));
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

// Round j computes S_j and its softmax beside O += P_{j-1} V_{j-1}. In decode a tile's chain of products and
// exponentials is what counts. Where CTAs walk the tensor core is busy with the other warpgroups: only the maxima run
// beside this one's product, and the exponentials in one block with P's conversion. The ring: K0, K1, V0, K2, V1, ...
// `meanwhile` is called while the last product is under way, or if there is none.
template <class T, class Meanwhile>
__device__ __forceinline__ void run_overlapped(Consumer<T>& c, Begun<T>& begun, Cursor<T>& at, Meanwhile meanwhile) {
    TileStream<T>& stream = begun.stream;
    if (!begun.any) {
        c.release_query();
        meanwhile();
        return;
    }
    Tile tile{}, before = begun.first;
    const bool one_load = c.params.flags & kFmhaSharedKv;
    Cursor<T> keys = at, values = at, key = at, value;
    float factor[2];
    typename Rows<T>::Entries valid = c.rows.valid_entries(stream, before);
    if constexpr (T::kWalks) {
        keys.advance(T::kUnits);
    } else {
        c.issue_scores(keys);
    }
    bool more = stream.next(tile);
    ptx::wgmma_wait<0>();
    ptx::pin(c.s);
    stamp<kFirstScores>(threadIdx.x == 0);
    if (!one_load) {
        c.template release<T::kUnits>(key, before.sparse());
    }
    if (!more) {
        c.release_query();
    }
    c.template softmax<true>(before, valid, factor);
    c.pack(c.p);
    stamp<kFirstSoftmax>(threadIdx.x == 0);
    while (more) {
        const Tile current = tile;
        bool shrinks;
        valid = c.rows.valid_entries(stream, current);
        key = keys;
        c.wait_for_turn();
        c.issue_scores(keys);
        values = one_load ? values : keys;
        value = values;
        c.issue_output(values, c.p);
        c.pass_turn();
        keys = one_load ? keys : values;
        if constexpr (T::kWalks) {
            more = stream.next(tile);
        }
        ptx::wgmma_wait<1>();
        ptx::pin(c.s);
        if (!one_load) {
            c.template release<T::kUnits>(key, current.sparse());
        }
        if constexpr (T::kWalks) {
            if (!more) {
                c.release_query();
            }
            shrinks = c.find_maxima(current, valid, factor);
        } else {
            shrinks = c.softmax(current, valid, factor);
            ptx::pin(c.s);
            // Here, since it has branches: ptxas moves a wait to the head of its block, and the exponentials behind it.
            more = stream.next(tile);
        }
        ptx::wgmma_wait<0>();
        c.pin_output();
        c.template release<T::kUnits>(value, before.sparse());
        c.rescale(factor, shrinks);
        if constexpr (T::kWalks) {
            c.exponentiate_scores();
        }
        c.pack(c.p);
        before = current;
    }
    const bool more_of_others = T::kTurns && begun.unseen > 0;
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
    if (T::kWalks || c.place.width > 1) {  // as above, and one that walks may have a row tile
        c.template release<T::kUnits>(value, before.sparse());
    }
    if constexpr (T::kTurns) {
        pass_over_unseen(c, begun.unseen, one_load, at);
    }
}

}  // namespace fmha::sm90
