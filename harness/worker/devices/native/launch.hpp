// What a call is launched as: grids, parameters and tensor maps, as harness/kernel_side/launch.py makes them.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>

#include "../../../../kernel/include/fmha_params.h"
#include "driver.hpp"
#include "price.hpp"
#include "sizes.hpp"

namespace fmha::planner {

constexpr i64 kBoxElements = 64;
constexpr i64 kCombineThreads = 128, kCombineRows = 4;
constexpr i64 kLeastTilesASplit = 4;

// What is decided of a call.
struct Decision {
    std::size_t variant = 0;
    i64 splits = 1;
    i64 balance_ctas = 0, part_tiles = 0;  // 0: each plane has `splits` splits
};

struct Grid {
    i64 x = 1, y = 1, z = 1;
};

struct Launch {
    void* function = nullptr;
    Grid grid;
    i64 threads = 0, shared_bytes = 0;
    bool overlaps = true;
};

// A map without its address.
struct MapSpec {
    u32 rank = 0;
    u64 dims[5]{}, strides[4]{};
    u32 box[5]{};
};

// Of what passes partial results on, the bytes of each within the scratch memory, in its order.
struct Scratch {
    i64 partial_o = 0, partial_max = 0, partial_sum = 0, shares = 0;
    i64 bytes() const { return partial_o + partial_max + partial_sum + shares; }
};

struct Made {
    Launch forward, combine;  // the second without a function where there is none
    MapSpec q, k, v;
    Scratch scratch;
    bool draws = false;
};

inline bool by_head(const Call& call, const Decision& d) {
    return call.kv_heads > 1 || call.q_gaps || call.scattered() || d.balance_ctas > 0;
}

struct QueryBox {
    i64 heads, queries;
    i64 rows() const { return heads * queries; }
};
inline QueryBox query_box(i64 rows, i64 heads) {
    const i64 idle = rows % heads, common = std::gcd(rows, heads);
    const bool whole = idle == 0 || (heads <= rows && idle * common <= rows / 2);
    return whole ? QueryBox{heads, rows / heads} : QueryBox{common, 1};
}

inline i64 tile_rows(const Variant& variant, const Call& call, const Decision& d) {
    if (!by_head(call, d)) return variant.rows;
    const i64 box = query_box(variant.rows, call.group()).rows();
    return 2 * box > variant.rows ? box : variant.rows;
}

inline i64 key_box(i64 keys, i64 page_size) { return page_size ? std::gcd(keys, page_size) : keys; }

// params.partial_f16, of splits that the combine kernel merges.
inline bool partial_f16(const Call& call) { return call.head_dim > 64 && call.output_bf16; }

inline bool overlaps_grid_before(const Call& call, i64 splits) {
    const i64 tiles = divide_up(call.rows(), 64) * call.planes();
    const bool twice = call.head_dim == 512 && splits > 1 && !call.shared_kv && tiles > call.planes();
    return !(twice && tiles * splits > kMultiprocessors / 2);
}

inline MapSpec strided(std::initializer_list<i64> dims, std::initializer_list<i64> strides,
                       std::initializer_list<i64> box) {
    MapSpec map;
    for (const i64 dim : dims) map.dims[map.rank++] = dim;
    u32 at = 0;
    for (const i64 stride : strides) map.strides[at++] = 2 * stride;
    at = 0;
    for (const i64 side : box) map.box[at++] = side;
    return map;
}

inline MapSpec query_map(const Variant& variant, const Call& call, const Decision& d) {
    const i64 rows = call.t * call.heads, width = call.width;
    if (!by_head(call, d))
        return strided({width, rows, call.batch}, {width, rows * width}, {kBoxElements, variant.rows, 1});
    Strides s = call.q;
    if (!call.q_gaps) s = {rows * width, call.heads * width, width};
    const i64 group = call.group();
    const bool packed = call.packed_q();
    const QueryBox box = query_box(variant.rows, group);
    return strided({width, group, packed ? call.total_q : call.t, call.kv_heads, packed ? 1 : call.batch},
                   {s.head, s.row, group * s.head, s.entry}, {kBoxElements, box.heads, box.queries, 1, 1});
}

inline MapSpec key_map(const Variant& variant, const Call& call, const Decision& d, bool gaps, Strides s) {
    i64 rows = call.page_size ? call.page_size : call.s_k;
    i64 outer = call.page_size ? call.pages : call.batch;
    if (!gaps) s = {rows * call.kv_heads * call.width, call.kv_heads * call.width, call.width};
    if (!by_head(call, d)) return strided({call.width, rows, outer}, {s.row, s.entry}, {kBoxElements, variant.keys, 1});
    if (call.packed_k()) rows = call.total_k, outer = 1;
    return strided({call.width, rows, call.kv_heads, outer}, {s.row, s.head, s.entry},
                   {kBoxElements, key_box(variant.keys, call.page_size), 1, 1});
}

// The combine kernel: what of its suffix it takes, and its grid.
inline void combine_of(const Variant& variant, const Call& call, const Decision& d, Launch& made) {
    const i64 rows = call.rows(), planes = call.planes();
    const i64 parts = d.balance_ctas ? divide_up(d.balance_ctas, planes) : d.splits;
    u32 suffix = 0;
    if (parts > kMostForAWarp && rows * planes <= kCombineCtas * kMultiprocessors) {
        suffix = kMany;
        made.grid = {rows, 1, planes};
    } else {
        made.grid = {divide_up(rows, kCombineRows), 1, planes};
    }
    if (d.balance_ctas) {
        suffix |= kBalancedParts;
        made.grid.z = std::min(made.grid.z, d.balance_ctas);
    }
    if (by_head(call, d) && !variant.by_head) suffix |= kOfHeads;
    made.function = variant.combine[suffix];
    made.threads = kCombineThreads;
}

inline i64 aligned(i64 elements) { return divide_up(4 * elements, 256) * 256; }

// Whether the partial results may be so many that their bytes do not fit an integer: asked before they are counted.
inline bool fits(const Call& call, const Decision& d, i64 most_bytes) {
    if (!d.balance_ctas && d.splits <= 1) return true;
    const double planes = static_cast<double>(call.planes());
    const double parts = d.balance_ctas ? static_cast<double>(d.balance_ctas) + planes : d.splits * planes;
    return 4.0 * parts * static_cast<double>(call.rows()) * static_cast<double>(call.head_dim) <=
           static_cast<double>(most_bytes);
}

inline Made made_of(const Tables& tables, const Call& call, const Decision& d) {
    const Variant& variant = tables.variants[d.variant];
    Made made;
    made.q = query_map(variant, call, d);
    made.k = key_map(variant, call, d, call.k_gaps, call.k);
    made.v = key_map(variant, call, d, call.v_gaps, call.v);
    const i64 planes = call.planes(),
              slots = kMultiprocessors * tables.shape_of(call.head_dim, variant.asked).ctas_per_sm;
    const i64 row_tiles = divide_up(call.rows(), tile_rows(variant, call, d));
    const bool walks = variant.kind == kDense && call.head_dim < 512 && d.splits == 1 && !d.balance_ctas;
    made.draws = walks && row_tiles * planes > slots;
    made.forward = {variant.forward,
                    {row_tiles, d.splits, planes},
                    variant.threads,
                    variant.shared_bytes,
                    overlaps_grid_before(call, d.splits)};
    if (made.draws) made.forward.grid = {slots, 1, 1};
    if (d.balance_ctas) made.forward.grid = {d.balance_ctas, 1, 1};
    if (d.balance_ctas || d.splits > 1) {
        const i64 parts = d.balance_ctas ? d.balance_ctas + planes : d.splits * planes;
        const i64 rows = parts * call.rows();
        made.scratch = {aligned(rows * call.head_dim), aligned(rows), aligned(rows),
                        d.balance_ctas ? aligned(2 * std::min(planes, d.balance_ctas)) : 0};
        combine_of(variant, call, d, made.combine);
    }
    return made;
}

// params.divisor.
inline void divisor(i64 number, u32& multiplier, u32& shift) {
    i64 bits = 0;
    while ((i64{1} << bits) < number) ++bits;
    shift = bits;
    multiplier = divide_up(i64{1} << (31 + bits), number);
}

// All but maps and pointers.
inline void fill(FmhaParams& p, const Variant& variant, const Call& call, const Decision& d) {
    std::memset(static_cast<void*>(&p), 0, sizeof p);
    p.batch = call.planes();
    p.t = call.t;
    p.heads = call.group();
    p.s_k = call.s_k;
    p.splits = d.splits;
    p.window_left = call.left;
    p.window_right = call.right;
    p.scale = call.scale;
    const bool merges = d.balance_ctas || d.splits > 1;
    p.flags = (call.normalise ? kFmhaNormalise : 0) | (call.output_bf16 ? kFmhaOutputBf16 : 0) |
              (call.shared_kv ? kFmhaSharedKv : 0) | (merges && partial_f16(call) ? kFmhaPartialF16 : 0) |
              (by_head(call, d) ? kFmhaByHead : 0) | (call.scattered() ? kFmhaScattered : 0);
    p.head_dim = call.head_dim;
    p.kv_heads = call.kv_heads;
    p.query_box = query_box(variant.rows, call.group()).rows();
    p.page_size = call.page_size;
    p.key_box = key_box(variant.keys, call.page_size);
    p.parts = d.balance_ctas ? d.balance_ctas + call.planes() : 0;
    p.part_tiles = d.part_tiles;
    divisor(call.group(), p.heads_multiplier, p.heads_shift);
    divisor(call.kv_heads, p.kv_heads_multiplier, p.kv_heads_shift);
}

}  // namespace fmha::planner
