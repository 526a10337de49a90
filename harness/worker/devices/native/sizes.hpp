// What a call is, as harness/kernel_side/launch.py's Call has it, and the kernels there are.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace fmha::planner {

using i64 = std::int64_t;
using u64 = std::uint64_t;
using u32 = std::uint32_t;

constexpr i64 kUnlimited = -1;         // of a window's sides
constexpr i64 kMultiprocessors = 132;  // of an H100 and of an H200, for which rules are: choice.py

inline i64 divide_up(i64 a, i64 b) { return (a + b - 1) / b; }

// Of a tensor, elements from one batch entry, row and head to the next.
struct Strides {
    i64 entry = 0, row = 0, head = 0;
};

struct Call {
    i64 head_dim = 0;  // the kernel's
    i64 width = 0;     // elements of a row in memory
    i64 batch = 0, t = 0, heads = 0, s_k = 0, kv_heads = 1;
    i64 page_size = 0, pages = 0;
    i64 total_q = -1, total_k = -1;  // -1: not packed
    i64 left = kUnlimited, right = kUnlimited;
    float scale = 0;
    bool shared_kv = false, normalise = true, output_bf16 = false;
    bool ragged = false;                                  // keys differ in number
    bool q_gaps = false, k_gaps = false, v_gaps = false;  // else contiguous, and the strides do not count
    Strides q, k, v;
    i64 asked_splits = 0;  // 0: left to us

    bool packed_q() const { return total_q >= 0; }
    bool packed_k() const { return total_k >= 0; }
    bool scattered() const { return page_size > 0 || packed_q() || packed_k(); }
    bool windowed() const { return left != kUnlimited || right != kUnlimited; }
    i64 planes() const { return batch * kv_heads; }
    i64 group() const { return heads / kv_heads; }  // query heads of a plane
    i64 rows() const { return t * group(); }        // of a plane
};

// A kernel: what harness/kernel_side/variants.py says of it, and how it is launched.
struct Variant {
    i64 head_dim, asked, kind;  // FMHA_ROWS, and a place in SM90_KINDS
    i64 by_head, paged, by_length;
    i64 rows, keys, threads, shared_bytes;
    void* forward = nullptr;         // null until it was loaded
    std::array<void*, 8> combine{};  // by the bits below
};
enum Kind : i64 { kWhole, kDense, kPlain };
constexpr u32 kMany = 1, kBalancedParts = 2, kOfHeads = 4;  // of the combine kernel's suffix

// A row of kernel/sm90/shapes.h.
struct Shape {
    i64 head_dim, asked, rows, keys, ctas_per_sm;
};

// Of paces.py.
struct Pace {
    i64 head_dim, asked, knows;
    double around, tile, together;
};
struct Rates {
    i64 head_dim;
    double launch, memory, lead, merge, merge_turn, cache, part_bytes, further, empty;
};

struct Tables {
    std::vector<Variant> variants;
    std::vector<Shape> shapes;
    std::vector<Pace> paces;
    std::vector<Rates> rates;

    // sm90_launch of params.py: the shape of `asked`, or the head_dim's own.
    const Shape& shape_of(i64 head_dim, i64 asked) const {
        const Shape* own = nullptr;
        for (const Shape& shape : shapes) {
            if (shape.head_dim != head_dim) continue;
            if (shape.asked == asked) return shape;
            if (!shape.asked) own = &shape;
        }
        return *own;
    }
    bool has_shape(i64 head_dim, i64 asked) const {
        for (const Shape& shape : shapes)
            if (shape.head_dim == head_dim && shape.asked == asked) return true;
        return false;
    }
};

}  // namespace fmha::planner
