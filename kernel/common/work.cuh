// Which rows and which keys a CTA works on. Plain C++17: a host compiler reads it too.
//
// A CTA has a list of tiles: the dense keys that any of its rows sees, then the entries of its query's index list. With
// splits, the CTAs that share those rows take contiguous ranges of the list.
#pragma once

#include <stdint.h>

#include "common/host_device.h"
#include "fmha_params.h"

// Whether a kernel knows kFmhaByHead. One that does not has none of its code.
#ifndef FMHA_KV_HEADS
#define FMHA_KV_HEADS 0
#endif
// Likewise for pages of K and V, and for packed queries and keys.
#ifndef FMHA_PAGED
#define FMHA_PAGED 0
#endif
#if FMHA_PAGED && !FMHA_KV_HEADS
#error "pages and packed sequences are for kernels that know K/V heads"
#endif

namespace fmha {

constexpr bool kKvHeads = FMHA_KV_HEADS;
constexpr bool kPaged = FMHA_PAGED;

FMHA_HOST_DEVICE constexpr int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

// To [0, high].
FMHA_HOST_DEVICE constexpr int32_t clamp(int64_t x, int32_t high) { return x < 0 ? 0 : x > high ? high : int32_t(x); }

// Dense keys [first, end); none when end <= first.
struct KeyRange {
    int32_t first;
    int32_t end;
};

// n / d for n >= 0, of the multiplier and the shift of d: FmhaParams::heads_multiplier says which those are.
FMHA_HOST_DEVICE constexpr int32_t quotient(int32_t n, uint32_t multiplier, uint32_t shift) {
    return int32_t(uint32_t(uint64_t(uint32_t(n) * 2) * multiplier >> 32) >> shift);
}

// n / heads and n / kv_heads, for n >= 0.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 1000
__device__ __forceinline__ int32_t by_heads(const FmhaParams& params, int32_t n) {
    return quotient(n, params.heads_multiplier, params.heads_shift);
}
__device__ __forceinline__ int32_t by_kv_heads(const FmhaParams& params, int32_t n) {
    return quotient(n, params.kv_heads_multiplier, params.kv_heads_shift);
}
#else  // once a CTA
FMHA_HOST_DEVICE inline int32_t by_heads(const FmhaParams& params, int32_t n) { return n / params.heads; }
FMHA_HOST_DEVICE inline int32_t by_kv_heads(const FmhaParams& params, int32_t n) { return n / params.kv_heads; }
#endif

FMHA_HOST_DEVICE inline bool by_head(const FmhaParams& params) { return kKvHeads && params.flags & kFmhaByHead; }

// The batch entry of a plane, in the plane's type.
template <class Index>
FMHA_HOST_DEVICE inline Index entry_of(const FmhaParams& params, Index plane) {
    return by_head(params) ? Index(by_kv_heads(params, plane)) : plane;
}

// The flag comes first: it is one test for all three.
FMHA_HOST_DEVICE inline bool scattered(const FmhaParams& params) { return kPaged && params.flags & kFmhaScattered; }
FMHA_HOST_DEVICE inline bool in_pages(const FmhaParams& params) { return scattered(params) && params.block_table; }
FMHA_HOST_DEVICE inline bool packed_queries(const FmhaParams& params) {
    return scattered(params) && params.cu_seqlens_q;
}
FMHA_HOST_DEVICE inline bool packed_keys(const FmhaParams& params) { return scattered(params) && params.cu_seqlens_k; }

// Queries of a batch entry.
template <class Index>
FMHA_HOST_DEVICE inline int32_t queries_of(const FmhaParams& params, Index entry) {
    return packed_queries(params) ? params.cu_seqlens_q[entry + 1] - params.cu_seqlens_q[entry] : params.t;
}

// kv_len of a batch entry.
template <class Index>
FMHA_HOST_DEVICE inline int32_t keys_of(const FmhaParams& params, Index entry) {
    if (packed_keys(params)) {
        return params.cu_seqlens_k[entry + 1] - params.cu_seqlens_k[entry];
    }
    return params.kv_lens ? params.kv_lens[entry] : params.s_k;
}

// One K/V head of one batch entry.
struct Plane {
    int32_t entry;
    int32_t kv_head;
};

FMHA_HOST_DEVICE inline Plane plane_of(const FmhaParams& params, int32_t index) {
    if (!by_head(params)) {
        return {index, 0};
    }
    const int32_t entry = by_kv_heads(params, index);
    return {entry, index - entry * params.kv_heads};
}

// The query head of row `row` of a plane, among all of its batch entry.
FMHA_HOST_DEVICE inline int32_t query_head(const FmhaParams& params, Plane plane, int32_t row) {
    return plane.kv_head * params.heads + row - by_heads(params, row) * params.heads;
}

// The first query of a batch entry among those of the outputs.
FMHA_HOST_DEVICE inline int64_t first_query(const FmhaParams& params, Plane plane) {
    return packed_queries(params) ? params.cu_seqlens_q[plane.entry] : int64_t(plane.entry) * params.t;
}

// Where row `row` of a plane is stored, among the rows of the outputs; `first` is first_query's. Without kFmhaByHead
// that is its place in the order of planes, in which partial results are.
FMHA_HOST_DEVICE inline int64_t stored_row(const FmhaParams& params, Plane plane, int64_t first, int32_t row) {
    const int32_t query = by_heads(params, row), head = row - query * params.heads;
    return (first + query) * (params.kv_heads * params.heads) + plane.kv_head * params.heads + head;
}

FMHA_HOST_DEVICE inline int64_t stored_row(const FmhaParams& params, Plane plane, int32_t row) {
    return stored_row(params, plane, first_query(params, plane), row);
}

struct Work {
    int32_t batch;  // the plane's index
    Plane plane;
    int32_t split;
    int32_t first_row;  // among the t * heads rows of the plane
    int32_t rows;       // how many of the CTA's rows are its own; the others are computed and not stored. With
                        // packed queries none, or less, where a CTA is behind the last query of its entry

    int32_t kv_len;
    int32_t query_offset;
    KeyRange dense;     // the keys that some row sees
    KeyRange all_rows;  // the keys that every row sees: a tile within needs no mask
    int32_t dense_tiles;
    int32_t tiles_end;  // where the last of them ends

    const int32_t* indices;  // of the CTA's one query
    int32_t entries;

    int32_t first_tile;  // the CTA's range of the list
    int32_t tiles;
};

// What a query sees of the dense keys (docs/understand/semantics.md). Positions are 64-bit: a window may be as wide as
// int32 goes.
FMHA_HOST_DEVICE inline KeyRange visible_keys(const FmhaParams& params, int32_t kv_len, int32_t query_offset,
                                              int32_t query) {
    const int64_t position = int64_t(query) + query_offset;
    const int64_t first = params.window_left == kFmhaUnlimited ? 0 : position - params.window_left;
    const int64_t end = params.window_right == kFmhaUnlimited ? kv_len : position + params.window_right + 1;
    return {clamp(first, kv_len), clamp(end, kv_len)};
}

// The rows of a CTA; see fmha_query_blocks in fmha_launch.h.
FMHA_HOST_DEVICE inline void assign_rows(const FmhaParams& params, int32_t queries, int32_t rows, int32_t block,
                                         Work& work) {
    if (params.topk > 0) {
        const int32_t blocks = ceil_div(params.heads, rows);
        const int32_t head = block % blocks * rows;
        work.first_row = block / blocks * params.heads + head;
        work.rows = params.heads - head < rows ? params.heads - head : rows;
    } else {
        const int32_t left = queries * params.heads - block * rows;
        work.first_row = block * rows;
        work.rows = left < rows ? left : rows;
    }
}

constexpr int32_t kToBeRead = -1;  // in the place of a length

// Fills in what CTA (block, split, batch) of the grid works on, with tiles of `keys` keys and CTAs of `rows` rows;
// `kv_len` where who asks has read it.
FMHA_HOST_DEVICE inline Work make_work(const FmhaParams& params, int32_t rows, int32_t keys, int32_t block,
                                       int32_t split, int32_t batch, int32_t kv_len = kToBeRead) {
    Work work{};
    work.batch = batch;
    work.split = split;
    work.plane = plane_of(params, batch);
    int32_t queries = params.t, last_of_box = 0;
    if (kv_len != kToBeRead) {
        work.kv_len = kv_len;
    } else {
        work.kv_len = params.kv_lens ? params.kv_lens[work.plane.entry] : params.s_k;
    }
    if (scattered(params)) {  // asked once: most launches are not
        queries = queries_of(params, work.plane.entry);
        work.kv_len = kv_len != kToBeRead ? kv_len : keys_of(params, work.plane.entry);
        last_of_box = in_pages(params) ? params.key_box - 1 : 0;
    }
    assign_rows(params, queries, rows, block, work);
    work.query_offset = params.query_offsets ? params.query_offsets[work.plane.entry] : work.kv_len - queries;

    // Both ends of a query's range grow with the query.
    const int32_t first_query = by_heads(params, work.first_row);
    const int32_t last_query = by_heads(params, work.first_row + work.rows - 1);
    const KeyRange first = visible_keys(params, work.kv_len, work.query_offset, first_query);
    const KeyRange last = visible_keys(params, work.kv_len, work.query_offset, last_query);
    work.dense = {first.first, last.end};
    work.all_rows = {last.first, first.end};
    work.tiles_end = (last.end + last_of_box) & ~last_of_box;  // a box has a power of two
    work.dense_tiles = last.end > first.first ? ceil_div(work.tiles_end - first.first, keys) : 0;

    if (params.topk > 0 && params.s_sparse > 0) {
        const int64_t query = int64_t(batch) * params.t + first_query;
        work.indices = params.sparse_indices + query * params.topk;
        work.entries = params.sparse_lens ? params.sparse_lens[query] : params.topk;
    }
    const int64_t tiles = work.dense_tiles + ceil_div(work.entries, keys);
    work.first_tile = int32_t(tiles * split / params.splits);
    work.tiles = int32_t(tiles * (split + 1) / params.splits) - work.first_tile;
    return work;
}

// Tile n of the list: dense tiles end with the last key that is seen, and so never touch a key past it, whose value may
// be a NaN that a probability of zero would not silence. What the first one holds before the range is masked; before
// the tensor, it reads as zero. Tiles of pages end with a box of the last key's page: what is past kv_len is cleared.
FMHA_HOST_DEVICE inline bool is_dense(const Work& work, int32_t tile) { return tile < work.dense_tiles; }

FMHA_HOST_DEVICE inline int32_t first_key(const Work& work, int32_t tile, int32_t keys) {
    return work.tiles_end - (work.dense_tiles - tile) * keys;
}

FMHA_HOST_DEVICE inline int32_t first_entry(const Work& work, int32_t tile, int32_t keys) {
    return (tile - work.dense_tiles) * keys;
}

// Whether some row of the CTA does not see some key of a dense tile.
FMHA_HOST_DEVICE inline bool needs_mask(const Work& work, int32_t key, int32_t keys) {
    return key < work.all_rows.first || key + keys > work.all_rows.end;
}

// The row of the sparse tensors, all batch entries together, that an entry of the list names; -1 when it names none.
FMHA_HOST_DEVICE inline int32_t sparse_row(const FmhaParams& params, const Work& work, int32_t entry) {
    if (entry >= work.entries) {
        return -1;
    }
    const int32_t index = work.indices[entry];
    return index >= 0 && index < params.s_sparse ? work.batch * params.s_sparse + index : -1;
}

// K and V tiles share one ring, in the order in which they are consumed:
//   V apart from K   K0, K1, V0, K2, V1, ..., K(n-1), V(n-2), V(n-1)
//   V is K           KV0, KV1, ..., KV(n-1)
struct RingOrder {
    int32_t tiles;
    bool shared_kv;

    FMHA_HOST_DEVICE int32_t key(int32_t tile) const { return shared_kv || tile == 0 ? tile : 2 * tile - 1; }
    FMHA_HOST_DEVICE int32_t value(int32_t tile) const {
        return shared_kv ? tile : tile + 1 < tiles ? 2 * tile + 2 : 2 * tile + 1;
    }
    FMHA_HOST_DEVICE int32_t count() const { return shared_kv ? tiles : 2 * tiles; }

    // The same the other way round: what the ring's use `use` is.
    FMHA_HOST_DEVICE bool is_value(int32_t use) const {
        return !shared_kv && (use + 1 == count() || (use > 0 && use % 2 == 0));
    }
    FMHA_HOST_DEVICE int32_t tile(int32_t use) const {
        if (shared_kv) {
            return use;
        }
        if (use + 1 == count()) {
            return tiles - 1;
        }
        return is_value(use) ? use / 2 - 1 : (use + 1) / 2;
    }
};

}  // namespace fmha
