// How every kernel is launched: plain constants, so that kernel, host and tests read one source.
// A forward kernel:
//
//   grid  (fmha_query_blocks(shape, t, heads, topk), splits, batch)
//   block (shape.threads, 1, 1)
//   dynamic shared memory: shape.shared_bytes
#pragma once

#include <stdint.h>

struct FmhaLaunchShape {
    int32_t rows;          // query rows of one CTA: the box of the map q
    int32_t keys;          // keys of one tile: the box of the maps k and v
    int32_t stages;        // tiles of K or V in flight, in one ring
    int32_t threads;       // of a CTA
    int32_t shared_bytes;  // dynamic shared memory, with room to align the base by hand
    int32_t ctas = 1;      // of a cluster, whose row tile has the rows of each
};

constexpr int32_t kFmhaSharedAlignment = 1024;    // the 128-byte swizzle pattern repeats every 1024 bytes
constexpr int32_t kFmhaSharedControlBytes = 128;  // mbarriers and the TMEM address word

constexpr int32_t kFmhaSm100Threads = 192;  // warps 0-3 softmax and epilogue, 4 MMA, 5 TMA

// Query rows of a CTA: 128, at head_dim 512 64, or fewer where a variant of fewer is asked for (0: none is).
constexpr int32_t fmha_sm100_rows(int32_t head_dim, int32_t asked) {
    return asked > 0 ? asked : head_dim == 512 ? 64 : 128;
}

// A row of fewer than 128 is shared by several threads, which exchange maxima, 2 buffers of a float for each of 128
// threads, and for P in TMEM also their 32 keys of P in bf16.
constexpr int32_t fmha_sm100_exchange_bytes(int32_t rows, bool p_in_shared) {
    return rows == 128 ? 0 : 2 * 128 * 4 + (p_in_shared ? 0 : 128 * 32 * 2);
}

// Q, the ring of K and V tiles and, where P goes through shared memory, two tiles of P, all bf16; then the exchange and
// the control words. A launch does not guarantee the alignment that the swizzle needs.
constexpr FmhaLaunchShape fmha_sm100_shape(int32_t head_dim, bool p_in_shared, int32_t asked = 0) {
    const int32_t rows = fmha_sm100_rows(head_dim, asked);
    const int32_t keys = head_dim <= 128 ? 128 : 64;
    const int32_t stages = head_dim == 512 ? 2 : 4;
    const int32_t elements = (rows + stages * keys) * head_dim + (p_in_shared ? 2 * rows * keys : 0);
    return {
        rows, keys, stages, kFmhaSm100Threads,
        kFmhaSharedAlignment + elements * 2 + fmha_sm100_exchange_bytes(rows, p_in_shared) + kFmhaSharedControlBytes};
}

// CTAs that a multiprocessor holds: two of few rows at head_dim 64, whose shared and tensor memory leave room for it.
constexpr int32_t fmha_sm100_ctas_per_sm(int32_t head_dim, int32_t asked) {
    return head_dim == 64 && asked > 0 ? 2 : 1;
}

constexpr int32_t kFmhaSm100PrefillThreads = 512;  // four warpgroups: kernel/sm100/prefill/fmha_prefill.cu
constexpr int32_t kFmhaSm100PrefillControlBytes = 256;

// The kernel for many rows, at head_dim 64 and 128: Q, the ring, a factor for each of 256 rows, and the control words.
// CTAs go through row tiles, by kernel/sm100/prefill/order.cuh; grid (CTAs, 1, 1), no more than there are row tiles.
constexpr FmhaLaunchShape fmha_sm100_prefill_shape(int32_t head_dim) {
    const int32_t rows = 256, keys = 128, stages = head_dim == 64 ? 8 : 4;
    return {rows, keys, stages, kFmhaSm100PrefillThreads,
            kFmhaSharedAlignment + (rows + stages * keys) * head_dim * 2 + rows * 4 + kFmhaSm100PrefillControlBytes};
}

// The kernel of CTA pairs, at head_dim 256 and 512, kernel/sm100/pair/fmha_pair.cu. A row tile has twice the rows of a
// CTA, 64 or 128, a tile of keys twice the keys; `stages` are slots of the ring, of 16 KiB. Q, the ring, P, and what
// fmha_sm100_shape has as well. Pairs go through row tiles; grid (2 * pairs, splits, 1), no more than there are row
// tiles.
constexpr int32_t kFmhaSm100PairCtas = 2;
constexpr int32_t kFmhaSm100PairControlBytes = 256;
constexpr FmhaLaunchShape fmha_sm100_pair_shape(int32_t head_dim, int32_t rows) {
    const int32_t keys = 64, stages = head_dim == 512 ? 9 : rows == 64 ? 11 : 8, ctas = kFmhaSm100PairCtas;
    const int32_t elements = rows * head_dim + stages * keys * 128 + rows * ctas * keys;
    const int32_t rest = fmha_sm100_exchange_bytes(rows, true) + kFmhaSm100PairControlBytes;
    return {rows, keys, stages, kFmhaSm100Threads, kFmhaSharedAlignment + elements * 2 + rest, ctas};
}

// Without a sparse branch a CTA takes `rows` of the t * heads rows of its batch entry, whichever queries they belong
// to. With one (topk > 0) every row of a CTA belongs to one query, whose index list it gathers.
constexpr int32_t fmha_query_blocks(FmhaLaunchShape shape, int32_t t, int32_t heads, int32_t topk) {
    return topk > 0 ? t * ((heads + shape.rows - 1) / shape.rows) : (t * heads + shape.rows - 1) / shape.rows;
}

// The combine kernel, behind a forward kernel with splits > 1: one warp a row, no dynamic shared memory,
// grid (ceil(t * heads / kFmhaCombineRows), 1, batch).
constexpr int32_t kFmhaCombineThreads = 128;
constexpr int32_t kFmhaCombineRows = kFmhaCombineThreads / 32;
