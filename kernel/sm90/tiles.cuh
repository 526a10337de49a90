// The key tiles that a CTA walks, in order. Every role of a CTA runs its own copy and sees the same tiles.
//
// Dense tiles first, then the index list of each query of the CTA. A split takes its share of both. Knows no machine.
#pragma once

#include <stdint.h>

#include "common/work.cuh"
#include "launch.h"

namespace fmha::sm90 {

struct Tile {
    int begin;   // first key, or first entry of the index list
    int query;   // sparse: whose list
    int length;  // sparse: entries of that list; dense: -1

    __device__ bool sparse() const { return kFmhaSm90Lists && length >= 0; }
};

__device__ __forceinline__ bool windowed(const FmhaParams& params) {
    return kFmhaSm90Windows && (params.window_left != kFmhaUnlimited || params.window_right != kFmhaUnlimited);
}

// The query of a row. Rows before row 0, which are stored nowhere, count as query 0.
__device__ __forceinline__ int query_of(const FmhaParams& params, int row) { return by_heads(params, max(row, 0)); }

// Of `count` tiles those of one split: the first splits take one more where they do not divide evenly. A CTA that walks
// has mostly one split, and asks once a row tile.
struct Share {
    int begin;
    int end;

    __device__ Share(int count, int split, int splits) : begin(0), end(count) {
        if (kFmhaSm90Walks && splits == 1) {
            return;
        }
        const int each = unsigned(count) / unsigned(splits);
        const int more = count - each * splits;
        begin = each * split + min(more, split);
        end = begin + each + (split < more ? 1 : 0);
    }
};

// Of the tiles of a CTA of `T`, a head_dim's Traits.
template <class T>
struct TileStream {
    static constexpr int Keys = T::kKeys;
    const FmhaParams* params;
    int batch;
    int dense;  // next dense key
    int dense_end;
    int query;    // whose list is next,
    int entry;    // and from where
    int entries;  // tiles of the lists still to come

    // Rows [own, own_end) are the CTA's. Row = query * heads + head, cut at the last row.
    template <class OwnTiles>
    __device__ TileStream(const FmhaParams& p, int b, const OwnTiles& own_tiles, int length, int offset, int own,
                          int own_end)
        : params(&p), batch(b) {
        KeyRange seen = {0, length};
        if (windowed(p)) {
            seen.first = visible_keys(p, length, offset, query_of(p, own)).first;
            seen.end = visible_keys(p, length, offset, query_of(p, own_end - 1)).end;
        }
        const int begin = seen.first / Keys;
        const Share tiles = own_tiles.share(p, begin, seen.end > seen.first ? ceil_div(seen.end, Keys) - begin : 0);
        dense = (begin + tiles.begin) * Keys;
        dense_end = (begin + tiles.end) * Keys;
        query = entry = entries = 0;
        const bool lists_name_rows =
            kFmhaSm90Lists && p.topk > 0 && p.s_sparse > 0;  // else there is no tensor map to gather by
        if (lists_name_rows && own_end > own) {
            const int lists = ceil_div(p.topk, Keys);
            query = by_heads(p, own);
            const Share share((by_heads(p, own_end - 1) - query + 1) * lists, blockIdx.y, p.splits);
            query += share.begin / lists;
            entry = share.begin % lists * Keys;
            entries = share.end - share.begin;
        }
    }

    // Of the dense tiles that begin in [dense, dense_end).
    __device__ TileStream(const FmhaParams& p, int b, int dense, int dense_end)
        : params(&p), batch(b), dense(dense), dense_end(dense_end), query(0), entry(0), entries(0) {}

    // Leaves out the dense tiles from key `end` on that are still to come; how many.
    __device__ int leave_out(int end) {
        const int left = max(dense_end - max(ceil_div(end, Keys) * Keys, dense), 0);
        dense_end -= left;
        return left / Keys;
    }

    // The next tile; false after the last.
    __device__ bool next(Tile& tile) {
        if (dense < dense_end) {
            tile = {dense, 0, -1};
            dense += Keys;
            return true;
        }
        if constexpr (!kFmhaSm90Lists) {
            return false;
        } else {
            for (; entries > 0; --entries) {
                if (entry >= params->topk) {
                    entry = 0;
                    ++query;
                }
                const int begin = entry;
                entry += Keys;
                const int64_t list = int64_t(batch) * params->t + query;
                const int length = params->sparse_lens ? params->sparse_lens[list] : params->topk;
                if (begin < length) {
                    --entries;
                    tile = {begin, query, length};
                    return true;
                }
            }
            return false;
        }
    }

    // The row of sparse_k that entry `e` of the tile's list names, or -1.
    __device__ int row_of(const Tile& tile, int e) const {
        if (tile.begin + e >= tile.length) {
            return -1;
        }
        const int64_t list = int64_t(batch) * params->t + tile.query;
        const int index = params->sparse_indices[list * params->topk + tile.begin + e];
        return index >= 0 && index < params->s_sparse ? index : -1;
    }
};

}  // namespace fmha::sm90
