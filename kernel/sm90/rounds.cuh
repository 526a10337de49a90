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
    Tile tile{};
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
            c.template release<T::kUnits>(key);
        }
        float factor[2];
        const bool shrinks = c.softmax(tile, valid, factor);
        c.rescale(factor, shrinks);
        c.pack(c.p);
        value = at;
        c.issue_output(at, c.p);
        if (!stream.next(tile)) {
            break;
        }
        valid = c.rows.valid_entries(stream, tile);
        key = at;
        c.issue_scores(at);
        ptx::wgmma_wait<0>();
        ptx::pin(c.s);
        c.pin_output();
        c.template release<T::kUnits>(value);
    }
    ptx::wgmma_wait<0>();
    c.pin_output();
}

// The tiles of keys of a row tile, and the first of them, if there is any.
template <class T>
struct KeyTiles {
    TileStream<T> stream;
    Tile first{};
    bool any;

    __device__ __forceinline__ KeyTiles(const Place<T>& place, const FmhaParams& params)
        : stream(place.tiles(params)), any(stream.next(first)) {}
};

// P of the first tile, whose S is under way and whose K is at `key`; whether there is `more` than that tile.
template <class T>
__device__ __forceinline__ void finish_first(Consumer<T>& c, const KeyTiles<T>& tiles, const Cursor<T>& key,
                                             bool one_load, bool more) {
    const typename Rows<T>::Entries valid = c.rows.valid_entries(tiles.stream, tiles.first);
    float factor[2];
    ptx::wgmma_wait<0>();
    ptx::pin(c.s);
    stamp<kFirstScores>(threadIdx.x == 0);
    if (!one_load) {
        c.template release<T::kUnits>(key);
    }
    if (!more) {
        c.release_query();
    }
    c.template softmax<true>(tiles.first, valid, factor);
    c.pack(c.p);
    stamp<kFirstSoftmax>(threadIdx.x == 0);
}

// Round j computes S_j and its softmax beside O += P_{j-1} V_{j-1}. In decode a tile's chain of products and
// exponentials is what counts. The ring: K0, K1, V0, K2, V1, ...
template <class T>
__device__ __forceinline__ void run_overlapped(Consumer<T>& c, KeyTiles<T>& tiles, Cursor<T>& at) {
    TileStream<T>& stream = tiles.stream;
    if (!tiles.any) {
        return;
    }
    Tile tile{};
    const bool one_load = c.params.flags & kFmhaSharedKv;
    Cursor<T> keys = at, values = at, key = at, value;
    float factor[2];
    typename Rows<T>::Entries valid;
    c.issue_scores(keys);
    bool more = stream.next(tile);
    finish_first(c, tiles, key, one_load, more);
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
            c.template release<T::kUnits>(key);
        }
        const bool shrinks = c.softmax(current, valid, factor);
        ptx::pin(c.s);
        // Here, since it has branches: ptxas moves a wait to the head of its block, and the exponentials behind it.
        more = stream.next(tile);
        ptx::wgmma_wait<0>();
        c.pin_output();
        c.template release<T::kUnits>(value);
        c.rescale(factor, shrinks);
        c.pack(c.p);
    }
    value = values = one_load ? values : keys;
    c.issue_output(values, c.p);
    at = values;
    ptx::wgmma_wait<0>();
    c.pin_output();
}

}  // namespace fmha::sm90
