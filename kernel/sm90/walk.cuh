// The row tile that a CTA is at, and the order in which those are drawn.
#pragma once

#include <stdint.h>

#include "common/work.cuh"
#include "packed.cuh"
#include "parts.cuh"
#include "traits.cuh"

namespace fmha::sm90 {

// Rows from one row tile to the next: all of a CTA's or, where a box of Q is as many whole queries as fit, that box's,
// and the CTA's last rows are idle.
template <class T>
__device__ __forceinline__ int tile_rows(const FmhaParams& params) {
    if constexpr (kKvHeads) {
        return params.query_box > T::kRows / 2 ? params.query_box : T::kRows;
    } else {
        return T::kRows;
    }
}

// The row tile that a CTA is at: its own, or where CTAs walk one after another that it draws, until none is left.
// Without a window batch entries follow one another, so that CTAs that are at work read the K and V of as few entries
// as can be. Else row tiles are of several lengths: entries come by groups, in each of which the last rows of all its
// entries come first, since under a causal mask they have the most keys. Where queries are packed a PackedOrder says
// which row tiles there are; without it, as with a CTA each, some may be behind the last query.
template <class T>
struct Walk {
    int turn = 0;
    int batch;
    int row_tile;  // negative: none is left
    OwnTiles<T::kPolicy.balances> tiles;
    unsigned each = 1;     // entries of a group
    unsigned before_last;  // entries of all groups but the last one

    // By the whole warp, as is go_to. Where packed row tiles are drawn order_role finds them; others are told.
    __device__ explicit Walk(const FmhaParams& params) : before_last(params.batch - 1) {
        if (balanced<T>(params) || draws_packed(params)) {
            batch = row_tile = 0;
        } else if (draws(params)) {
            if (windowed(params)) {
                divide(params);
            }
            go_to(params, blockIdx.x);
        } else {
            batch = blockIdx.z;
            row_tile = row_tiles(params) - 1 - blockIdx.x;
        }
    }

    static __device__ bool draws(const FmhaParams& params) {
        return T::kWalks && !(int(gridDim.x) == row_tiles(params) && int(gridDim.z) == params.batch);
    }
    static __device__ bool draws_packed(const FmhaParams& params) {
        return (T::kPolicy.row_tiles == RowTiles::kByLength) && packed_queries(params) && draws(params) &&
               ctas() < all(params) && !balanced<T>(params);
    }

    // The order of packed row tiles, once lengths may be read.
    __device__ PackedOrder packed_order(const FmhaParams& params) {
        if (!windowed(params)) {
            return {params.batch, params.batch};
        }
        divide(params);
        return {int(each), int(before_last)};
    }

    // Whether row tiles end with a plane's last row, so that the first one may lack rows: under a causal mask it has
    // the fewest keys. Wherever there is a count to draw by, drawn or not: all roles need the same answer, and this one
    // costs nothing. Row tiles that are no higher than those of keys are wide keep their diagonals in as few of these
    // as can be.
    static __device__ bool from_end(const FmhaParams& params) {
        return T::kWalks && T::kRows > T::kKeys && windowed(params) && params.drawn != nullptr;
    }

    // The first row of the row tile, in a plane of `rows` rows; negative where it lacks rows before row 0.
    __device__ int first_row(const FmhaParams& params, int rows) const {
        const int each = tile_rows<T>(params), lacking = from_end(params) ? ceil_div(rows, each) * each - rows : 0;
        return row_tile * each - lacking;
    }

    static __device__ int row_tiles(const FmhaParams& params) {
        return ceil_div(params.t * params.heads, tile_rows<T>(params));
    }
    static __device__ int ctas() { return gridDim.x * gridDim.z; }
    static __device__ int all(const FmhaParams& params) { return row_tiles(params) * params.batch; }

    // Entries into groups, evenly. Each CTA gets about two row tiles of a group, or as many as there are of entries
    // whose K and V the L2 holds beside what passes. Then the last group may fill more of it, since behind it are no
    // row tiles for the CTAs that are done early, and has two entries at least.
    __device__ void divide(const FmhaParams& params) {
        constexpr unsigned kCached = 16u << 20, kCachedOfLast = 24u << 20;  // bytes
        const unsigned entries = params.batch, keys = max(usual_keys(params), 1);
        const unsigned key_bytes = T::kHeadDim * (params.flags & kFmhaSharedKv ? 2 : 4);
        const unsigned wanted = 2 * ceil_div(ctas(), usual_tiles(params));
        const unsigned most = max(min(wanted, kCached / key_bytes / keys), 1u);
        const unsigned last = min(wanted, max(kCachedOfLast / key_bytes / keys, 2u));
        if (last > most && entries >= most + last) {
            before_last = entries - last;
            each = ceil_div(before_last, ceil_div(before_last, most));
        } else {
            const bool larger = last > most || entries < 2 * most;  // than `most`, where they do not divide evenly
            each = ceil_div(entries, larger ? max(entries / most, 1u) : ceil_div(entries, most));
            before_last = (ceil_div(entries, each) - 1) * each;
        }
    }

    // With balanced splits, whose planes have one row tile each.
    __device__ void go_to(const BalancedWalk<T>& balance) {
        batch = max(balance.plane, 0);
        row_tile = min(balance.plane, 0);
        tiles.take(balance.span);
    }

    // Keys and row tiles of an entry: where queries are packed the mean, else as many as one may have.
    static __device__ int usual_keys(const FmhaParams& params) {
        return draws_packed(params) && packed_keys(params) ? mean(params, params.cu_seqlens_k) : params.s_k;
    }
    static __device__ int usual_tiles(const FmhaParams& params) {
        if (!draws_packed(params)) {
            return row_tiles(params);
        }
        return max(ceil_div(mean(params, params.cu_seqlens_q) * params.heads, tile_rows<T>(params)), 1);
    }
    static __device__ int mean(const FmhaParams& params, const int32_t* ends) {
        const int entries = by_kv_heads(params, params.batch);
        return ceil_div(ends[entries], entries);
    }

    // The tile `index` in the order of all; where queries are packed from where it has come.
    __device__ void go_to(const FmhaParams& params, PackedOrder& order, int index) {
        if (!order.find(params, tile_rows<T>(params), index, batch, row_tile)) {
            row_tile = -1;
        }
    }
    __device__ void go_to(const FmhaParams& params, int index) {
        const unsigned rows = row_tiles(params);
        if (index >= all(params)) {
            row_tile = -1;
            return;
        }
        const bool in_last = unsigned(index) >= before_last * rows;
        const unsigned first = in_last ? before_last : unsigned(index) / (each * rows) * each;
        const unsigned width = in_last ? params.batch - first : min(each, before_last - first);
        const unsigned place = unsigned(index) - first * rows;
        batch = first + place % width;
        row_tile = rows - 1 - place / width;
    }
};

// Keys of the dense branch of a row tile: with packed queries none where it is behind the last one of its entry.
template <class T, class Index>
__device__ __forceinline__ int length_of(const FmhaParams& params, Index entry, int row_tile) {
    if (kPaged && row_tile * tile_rows<T>(params) >= queries_of(params, entry) * params.heads) {
        return 0;
    }
    return keys_of(params, entry);
}

}  // namespace fmha::sm90
