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

// The tiles of keys of a row tile, and the first of them, if there is any.
template <class T>
struct Tiles {
    TileStream<T> stream;
    Tile first{};
    bool any;

    __device__ __forceinline__ Tiles(const Place<T>& place, const FmhaParams& params)
        : stream(place.tiles(params)), any(stream.next(first)) {}
};

// Round j computes S_j and its softmax beside O += P_{j-1} V_{j-1}. In decode a tile's chain of products and
// exponentials is what counts. The ring: K0, K1, V0, K2, V1, ...
template <class T>
__device__ __forceinline__ void run_overlapped(Consumer<T>& c, Tiles<T>& tiles, Cursor<T>& at) {
    TileStream<T>& stream = tiles.stream;
    if (!tiles.any) {
        return;
    }
    Tile tile{}, before = tiles.first;
    const bool one_load = c.params.flags & kFmhaSharedKv;
    Cursor<T> keys = at, values = at, key = at, value;
    float factor[2];
    typename Rows<T>::Entries valid = c.rows.valid_entries(stream, before);
    c.issue_scores(keys);
    bool more = stream.next(tile);
    ptx::wgmma_wait<0>();
    ptx::pin(c.s);
    stamp<kFirstScores>(threadIdx.x == 0);
    if (!one_load) {
        c.template release<T::kUnits>(key, before.sparse());
    }
    c.template softmax<true>(before, valid, factor);
    c.pack(c.p);
    stamp<kFirstSoftmax>(threadIdx.x == 0);
    while (more) {
        const Tile current = tile;
        valid = c.rows.valid_entries(stream, current);
        key = keys;
        c.issue_scores(keys);
        values = one_load ? values : keys;
        value = values;
        c.issue_output(values, c.p);
        keys = one_load ? keys : values;
        ptx::wgmma_wait<1>();
        ptx::pin(c.s);
        if (!one_load) {
            c.template release<T::kUnits>(key, current.sparse());
        }
        const bool shrinks = c.softmax(current, valid, factor);
        ptx::pin(c.s);
        // Here, since it has branches: ptxas moves a wait to the head of its block, and the exponentials behind it.
        more = stream.next(tile);
        ptx::wgmma_wait<0>();
        c.pin_output();
        c.template release<T::kUnits>(value, before.sparse());
        c.rescale(factor, shrinks);
        c.pack(c.p);
        before = current;
    }
    value = values = one_load ? values : keys;
    c.issue_output(values, c.p);
    at = values;
    ptx::wgmma_wait<0>();
    c.pin_output();
    if (c.place.width > 1) {  // as above
        c.template release<T::kUnits>(value, before.sparse());
    }
}

}  // namespace fmha::sm90
