// The product of a wgmma operation, when it completes.
//
// Floating-point sums: see numbers/aligned_sum.hpp; of D of f32 and finite factors, ptx/wgmma/sums.hpp makes them
// faster.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "ptx/mma/sparsity.hpp"
#include "ptx/wgmma/sums.hpp"

namespace ptxm {
namespace {

using wgmma_sums::kMaxK, wgmma_sums::kMaxN;

// A sparse A stores kMaxK elements of a row, and multiplies rows of a B with twice as many.
template <class T>
struct Tiles {
    T a[kWgmmaRows * kMaxK], b[2 * kMaxK * kMaxN], d[kWgmmaRows * kMaxN];
};

template <u32 bits, class T, class Decode>
void gather_b(const WgmmaOperation& op, T* b, Decode decode) {
    const WgmmaShape& s = op.shape;
    each_wgmma_element<bits / 8>(*op.warps[0]->cta, decode_wgmma_descriptor(op.b, "B"), s.b_tile(),
                                 [&](u32 n, u32 k, u32 raw) { b[k * kMaxN + n] = decode(raw); });
}

template <u32 bits, class T, class Decode>
void gather_a(const WgmmaOperation& op, u32 warp, T* a, Decode decode) {
    const WgmmaShape& s = op.shape;
    Warp& w = *op.warps[warp];
    if (!s.a_registers) {
        each_wgmma_element<bits / 8>(*w.cta, decode_wgmma_descriptor(op.a, "A"), s.a_tile(warp),
                                     [&](u32 m, u32 k, u32 raw) { a[m % kWgmmaRows * kMaxK + k] = decode(raw); });
        return;
    }
    const WgmmaSources from = wgmma_sources(op.units[warp], s);
    constexpr u32 per = 32 / bits;
    for (u32 r = 0; r < 4; ++r) {
        const u32* raw = w.reg<u32>(from.a[r]);
        for (u32 l = 0; l < kLanes; ++l) {
            for (u32 e = 0; e < per; ++e) {
                const fragment::Position p = fragment::a(kWgmmaRows, per, l, r, e);
                a[p.row * kMaxK + p.column] = decode(raw[l] >> (e * bits));
            }
        }
    }
}

// f(element, lane, place in a 16 x 256 tile) for a warp's part of D.
template <class F>
void each_d(u32 n, F f) {
    for (u32 e = 0; e < n / 2; ++e) {
        for (u32 l = 0; l < kLanes; ++l) {
            const fragment::Position p = fragment::d(l, e);
            f(e, l, p.row * kMaxN + p.column);
        }
    }
}

// The row of B for each element of a row of A.
void rows_of_b(const WgmmaOperation& op, u32 warp, u32 row, u16* at) {
    const WgmmaShape& s = op.shape;
    if (!s.sparse) return std::iota(at, at + s.stored(), u16{0});
    const Sparsity kind = sparsity_of(s.a);
    sparse_positions(kind, s.k / chunk_elements(kind), s.selector, (*op.metadata)[warp].data(), row, at,
                     container_bits(s.a) <= 8);
}

// One row's sums of kWide columns, which stay in registers over k.
template <u32 kWide, class Product>
void multiply_block(u32 depth, const i32* a, const u16* at, const i32* b, i32* d, Product product) {
    i32 sum[kWide];
    for (u32 j = 0; j < kWide; ++j) sum[j] = d[j];
    for (u32 k = 0; k < depth; ++k) {
        const i32 x = a[k];
        const i32* row = b + at[k] * kMaxN;
        for (u32 j = 0; j < kWide; ++j) sum[j] += product(x, row[j]);
    }
    for (u32 j = 0; j < kWide; ++j) d[j] = sum[j];
}

// N is a multiple of eight.
template <class Product>
void multiply(const WgmmaOperation& op, u32 warp, const i32* a, const i32* b, i32* d, Product product) {
    constexpr u32 kWide = 32, kNarrow = 8;
    const WgmmaShape& s = op.shape;
    u16 at[kMaxK];
    for (u32 row = 0; row < kWgmmaRows; ++row) {
        rows_of_b(op, warp, row, at);
        const i32* x = a + row * kMaxK;
        i32* sums = d + row * kMaxN;
        u32 n = 0;
        for (; n + kWide <= s.n; n += kWide) multiply_block<kWide>(s.stored(), x, at, b + n, sums + n, product);
        for (; n < s.n; n += kNarrow) multiply_block<kNarrow>(s.stored(), x, at, b + n, sums + n, product);
    }
}

void multiply(const WgmmaOperation& op, u32 warp, const float* a, const float* b, float* d) {
    using namespace aligned_sum;
    const WgmmaShape& s = op.shape;
    const Precision precision = wgmma_sums::precision_of(s.a);
    const int least_a = least_exponent(s.a), least_b = least_exponent(s.b), least_d = least_exponent(s.d);
    u16 at[kWgmmaRows][kMaxK];
    for (u32 row = 0; row < kWgmmaRows; ++row) rows_of_b(op, warp, row, at[row]);
    for (u32 n = 0; n < s.n; n += kColumns) {
        const Columns columns(b + n, s.k, kMaxN, least_b);
        for (u32 row = 0; row < kWgmmaRows; ++row) {
            float* out = d + row * kMaxN + n;
            double sum[kColumns];
            add(precision.fraction, s.stored(), a + row * kMaxK, least_a, at[row], columns, {out, least_d}, sum);
            if (s.d != ElementType::f16)
                to_floats(sum, precision.kept, out);
            else
                for (u32 j = 0; j < kColumns; ++j) out[j] = half_to_float(to_half(sum[j]));
        }
    }
}

bool all_finite(const float* values, u32 rows, u32 columns, u32 stride) {
    typedef u32 Words __attribute__((vector_size(32)));
    constexpr u32 kWide = sizeof(Words) / sizeof(u32);
    Words largest{};
    for (u32 r = 0; r < rows; ++r) {
        for (u32 c = 0; c < columns; c += kWide) {
            Words bits;
            std::memcpy(&bits, values + r * stride + c, sizeof bits);
            bits += bits;
            largest = bits > largest ? bits : largest;
        }
    }
    u32 all = 0;
    for (u32 j = 0; j < kWide; ++j) all = std::max(all, largest[j]);
    return all < 0xFF000000u;
}

void load_d(const WgmmaOperation& op, u32 warp, float* out) {
    Warp& w = *op.warps[warp];
    const i32* d = op.units[warp];
    if (op.shape.d == ElementType::f16)
        each_d(op.shape.n, [&](u32 e, u32 l, u32 at) { out[at] = half_to_float(w.reg<u16>(d[e / 2])[2 * l + e % 2]); });
    else
        each_d(op.shape.n, [&](u32 e, u32 l, u32 at) { out[at] = w.reg<float>(d[e])[l]; });
}

void store_d(const WgmmaOperation& op, u32 warp, const float* in) {
    Warp& w = *op.warps[warp];
    const i32* d = op.units[warp];
    if (op.shape.d == ElementType::f16)
        each_d(op.shape.n, [&](u32 e, u32 l, u32 at) { w.reg<u16>(d[e / 2])[2 * l + e % 2] = float_to_half(in[at]); });
    else
        each_d(op.shape.n, [&](u32 e, u32 l, u32 at) { w.reg<float>(d[e])[l] = in[at]; });
}

void execute_float(const WgmmaOperation& op) {
    static thread_local wgmma_sums::PackedB packed;
    Tiles<float> t;
    const WgmmaShape& s = op.shape;
    element::with_float(s.b, [&](auto bits, auto decode) {
        gather_b<bits.value>(op, t.b, [&, scale = s.b_scale](u32 raw) { return scale * decode(raw); });
    });
    const bool fast_b = s.d == ElementType::f32 && !s.sparse && all_finite(t.b, s.k, s.n, kMaxN);
    if (fast_b) wgmma_sums::pack_b(s, t.b, packed);
    for (u32 warp = 0; warp < kWgmmaWarps; ++warp) {
        element::with_float(s.a, [&](auto bits, auto decode) {
            gather_a<bits.value>(op, warp, t.a, [&, scale = s.a_scale](u32 raw) { return scale * decode(raw); });
        });
        const bool fast = fast_b && all_finite(t.a, kWgmmaRows, s.k, kMaxK);
        if (fast && wgmma_sums::multiply_in_registers(op, warp, t.a, packed)) continue;
        if (op.accumulate)
            load_d(op, warp, t.d);
        else
            std::fill(std::begin(t.d), std::end(t.d), 0.0f);
        multiply(op, warp, t.a, t.b, t.d);
        store_d(op, warp, t.d);
    }
}

// Sums of 32 products of 8-bit values are exact in 32 bits; only the accumulator can overflow.
void execute_integer(const WgmmaOperation& op) {
    Tiles<i32> t;
    const WgmmaShape& s = op.shape;
    element::with_integer(s.b, [&](auto bits, auto decode) {
        if constexpr (bits.value == 8) gather_b<8>(op, t.b, decode);
    });
    for (u32 warp = 0; warp < kWgmmaWarps; ++warp) {
        Warp& w = *op.warps[warp];
        element::with_integer(s.a, [&](auto bits, auto decode) {
            if constexpr (bits.value == 8) gather_a<8>(op, warp, t.a, decode);
        });
        std::fill(std::begin(t.d), std::end(t.d), 0);
        if (s.bits)
            multiply(op, warp, t.a, t.b, t.d, [](i32 x, i32 y) { return std::popcount(static_cast<u32>(x & y)); });
        else
            multiply(op, warp, t.a, t.b, t.d, [](i32 x, i32 y) { return x * y; });
        each_d(s.n, [&](u32 e, u32 l, u32 at) {
            i32& d = w.reg<i32>(op.units[warp][e])[l];
            const i64 sum = i64{t.d[at]} + (op.accumulate ? d : 0);
            d = s.saturate ? static_cast<i32>(
                                 std::clamp<i64>(sum, std::numeric_limits<i32>::min(), std::numeric_limits<i32>::max()))
                           : static_cast<i32>(static_cast<u64>(sum));
        });
    }
}

}  // namespace

void execute_wgmma(const WgmmaOperation& op) {
    if (op.shape.d == ElementType::s32)
        execute_integer(op);
    else
        execute_float(op);
}

}  // namespace ptxm
