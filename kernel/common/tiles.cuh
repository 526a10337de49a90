// The key tiles that a CTA walks, in order. Every role of a CTA runs its own copy and sees the same tiles.
//
// Dense tiles first, then the index list of each query of the CTA. A split takes its share of both. Knows no machine.
#pragma once

#include <stdint.h>

#include "fmha_params.h"

namespace fmha {

// Keys [low, high) of the dense branch that one query sees.
struct Visible {
    int low;
    int high;
};

struct Tile {
    bool sparse;
    int begin;   // first key, or first entry of the index list
    int query;   // sparse: whose list
    int length;  // sparse: entries of that list
};

__device__ __forceinline__ int dense_length(const FmhaParams& params, int batch) {
    return params.kv_lens ? params.kv_lens[batch] : params.s_k;
}

// Sums in 64 bits: positions and windows may be anything that an int32 holds.
__device__ __forceinline__ Visible visible_keys(const FmhaParams& params, int length, int offset, int query) {
    const int64_t position = int64_t(query) + offset;
    const int64_t low = params.window_left == kFmhaUnlimited ? 0 : position - params.window_left;
    const int64_t high = params.window_right == kFmhaUnlimited ? length : position + params.window_right + 1;
    return {int(min(max(low, int64_t(0)), int64_t(length))), int(max(min(high, int64_t(length)), int64_t(0)))};
}

template <int Keys>
struct TileStream {
    const FmhaParams* params;
    int batch;
    int dense;  // next dense tile
    int dense_end;
    int entry;  // next tile of the lists, counted over the CTA's queries
    int entry_end;
    int lists;  // tiles of one list
    int first_query;
    bool pad;  // an empty list's tile is due

    // Rows [first, end) are those whose dense keys are loaded, the cluster's if it shares loads; [own, own_end) are the
    // CTA's. Row = query * heads + head, cut at the last row.
    __device__ TileStream(const FmhaParams& p, int b, int split, int length, int offset, int first, int end, int own,
                          int own_end, bool shared_loads)
        : params(&p), batch(b) {
        const int low = visible_keys(p, length, offset, first / p.heads).low;
        const int high = visible_keys(p, length, offset, (end - 1) / p.heads).high;
        const int begin = low / Keys;
        const int tiles = high > low ? (high + Keys - 1) / Keys - begin : 0;
        dense = begin + share(tiles, split);
        dense_end = begin + share(tiles, split + 1);
        lists = (p.topk + Keys - 1) / Keys;
        first_query = own / p.heads;
        const int queries = own_end > own ? (own_end - 1) / p.heads - first_query + 1 : 0;
        entry = share(queries * lists, split);
        entry_end = share(queries * lists, split + 1);
        // CTAs that share loads must agree on whether a tile follows the last dense one, since its K comes before that
        // one's V.
        pad = shared_loads && lists > 0;
    }

    // The next tile; false after the last.
    __device__ bool next(Tile& tile) {
        if (dense < dense_end) {
            tile = {false, dense++ * Keys, 0, 0};
            return true;
        }
        while (entry < entry_end) {
            const int query = first_query + entry / lists;
            const int begin = entry % lists * Keys;
            ++entry;
            const int64_t list = int64_t(batch) * params->t + query;
            const int length = params->sparse_lens ? params->sparse_lens[list] : params->topk;
            if (begin < length) {
                pad = false;
                tile = {true, begin, query, length};
                return true;
            }
        }
        if (pad) {
            pad = false;
            tile = {true, 0, first_query, 0};
            return true;
        }
        return false;
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

  private:
    // Where the tiles of `split` begin: the first splits take one more where they do not divide evenly.
    __device__ int share(int tiles, int split) const {
        return tiles / params->splits * split + min(tiles % params->splits, split);
    }
};

}  // namespace fmha
