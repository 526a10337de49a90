// The C ABI of every kernel, forward and combine, on every architecture: one parameter struct, passed as
// `const __grid_constant__ FmhaParams`. docs/understand/semantics.md defines what is computed. Every tensor is
// contiguous but q, k and v, whose strides are in their maps.
#pragma once

#include <stdint.h>

// The 128 opaque bytes of a CUtensorMap, so that neither host nor device code needs the driver's header.
struct alignas(64) FmhaTensorMap {
    uint64_t opaque[16];
};

// FmhaParams::flags
constexpr uint32_t kFmhaNormalise = 1u << 0;   // o = o_norm, else o_un
constexpr uint32_t kFmhaOutputBf16 = 1u << 1;  // o in bf16, only together with kFmhaNormalise; else fp32
constexpr uint32_t kFmhaSharedKv = 1u << 2;    // V is K: the maps v and sparse_v are not read
constexpr uint32_t kFmhaPartialF16 = 1u << 3;  // partial_o in f16, only together with kFmhaOutputBf16
constexpr uint32_t kFmhaByHead = 1u << 4;      // q, k and v have maps with a dimension of K/V heads
constexpr uint32_t kFmhaScattered = 1u << 5;   // block_table, cu_seqlens_q or cu_seqlens_k is there; with kFmhaByHead
constexpr int32_t kFmhaUnlimited = -1;         // window_left, window_right

// Tensor maps have 128-byte swizzle and 64-element rows (128 bytes of bf16); out of bounds reads as zero. `rows` and
// `keys` of the boxes are the variant's rows_per_cta and keys_per_tile (fmha_launch.h).
//
// Kernels work on planes: one K/V head of one batch entry each, with its own query heads. Plane = entry * kv_heads +
// K/V head. With kFmhaByHead, which kernels know that are compiled with FMHA_KV_HEADS, the maps are
//   q     {head_dim, heads, t, kv_heads, entries}, box {64, h, n, 1, 1} of query_box = h * n rows; h = heads if n > 1
//   k, v  {head_dim, s_k, kv_heads, entries}, box {64, keys, 1, 1}
// Without it there is one K/V head, and a plane is a batch entry.
//
// With kFmhaScattered, which kernels know that are compiled with FMHA_PAGED, there are three pointers more, each of
// which may be null:
//   block_table   keys are in pages. k, v {head_dim, page_size, kv_heads, pages}, box {64, key_box, 1, 1}, where
//                 key_box divides page_size and the keys of a tile. Key j of an entry is row j % page_size of the
//                 page that its row of the table has at j / page_size; s_k is what a row of the table has room for
//   cu_seqlens_q  queries are packed. q {head_dim, heads, total_q, kv_heads, 1}; rows of the outputs are packed
//                 alike. t is the most that an entry has
//   cu_seqlens_k  keys are packed, not with block_table or kv_lens. s_k is the most that an entry has; k, v
//                 on sm_90a   {head_dim, total_k, kv_heads, 1}
//                 on sm_100a  {head_dim, s_k, kv_heads, total_k}, where the last dimension's step is one key: an
//                             entry's tensor begins at its first key, before which its tiles read zeros
struct FmhaParams {
    FmhaTensorMap q;         // {head_dim, t * heads, batch}, box {64, rows, 1}
    FmhaTensorMap k;         // {head_dim, s_k, batch}, box {64, keys, 1}
    FmhaTensorMap v;         // as k
    FmhaTensorMap sparse_k;  // {head_dim, batch * s_sparse}, box {64, 1}: rows are gathered one by one or by four
    FmhaTensorMap sparse_v;  // as sparse_k

    void* o;         // [entries, t, kv_heads * heads, head_dim]
    float* row_max;  // [entries, t, kv_heads * heads]; null: not stored. So for row_sum and lse.
    float* row_sum;
    float* lse;

    // With splits > 1 the forward kernel writes only these, un-normalised, and the combine kernel reads them.
    float* partial_o;    // [splits, batch, t * heads, head_dim], by planes; f16 as partial.cuh says
    float* partial_max;  // [splits, batch, t * heads], likewise, natural-log units
    float* partial_sum;  // likewise

    const int32_t* kv_lens;         // [entries]; null: s_k
    const int32_t* query_offsets;   // [entries]; null: kv_len - t
    const int32_t* sparse_indices;  // [batch, t, topk], without kFmhaByHead
    const int32_t* sparse_lens;     // [batch, t]; null: topk
    const float* sink;              // [kv_heads * heads]; null: none

    uint32_t* drawn;  // by CTAs that draw row tiles, sm_90a alone: 0 before a launch and after it, no other's meanwhile

    int32_t batch;  // planes
    int32_t t;
    int32_t heads;  // query heads of a plane
    int32_t s_k;
    int32_t s_sparse;
    int32_t topk;  // 0: no sparse branch
    int32_t splits;
    int32_t window_left;   // keys before the query's own, or kFmhaUnlimited
    int32_t window_right;  // keys after it, likewise; 0 is causal
    float scale;           // multiplies q.k, natural-log units
    uint32_t flags;
    int32_t head_dim;  // for the combine kernel; a forward kernel is compiled for one

    int32_t kv_heads;   // of a batch entry; read with kFmhaByHead alone, as is
    int32_t query_box;  // rows of a box of the map q: a CTA's rows are a multiple, or on sm_90a have room for one alone

    const int32_t* block_table;   // [entries, s_k / page_size]
    const int32_t* cu_seqlens_q;  // [entries + 1]: where each entry's queries begin, and where the last ones end
    const int32_t* cu_seqlens_k;  // likewise of keys
    int32_t page_size;            // a power of two
    int32_t key_box;              // keys of a box of the maps k and v

    // Balanced splits. On sm_90a, of planes with one row tile: the tiles of all planes are divided evenly among the
    // CTAs, which are gridDim.x, kv_heads at least. On sm_100a a CTA or a pair has one entry's, by sm100/portions.cuh:
    // grid (row tiles, CTAs of each, kv_heads), and `splits` is 1. The partial results of a plane are kv_heads apart:
    // partial_o [parts, t * heads, head_dim] and so on. A plane with a single one has its result from the forward
    // kernel.
    int32_t* shares;     // [min(batch, CTAs), 2], by the forward kernel: of a plane, or where those are more of the one
                         // that a CTA begins and another ends, the first partial result and how many there are
    int32_t parts;       // room for them, CTAs and planes together; 0: each plane has `splits` splits
    int32_t part_tiles;  // that a CTA has at least, where it has any; on sm_100a, where it has not all of an entry

    // What a division by `heads` and by `kv_heads` multiplies by and shifts by: sm_90a divides between two row tiles,
    // where a division takes a hundred cycles. For n / d, 0 <= n < 2^31: the shift is ceil(log2 d), the multiplier
    // ceil(2^(31 + shift) / d), and the quotient (2 n * multiplier >> 32) >> shift.
    uint32_t heads_multiplier;
    uint32_t heads_shift;
    uint32_t kv_heads_multiplier;
    uint32_t kv_heads_shift;
};
