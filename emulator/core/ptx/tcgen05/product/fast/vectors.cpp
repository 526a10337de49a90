// D += A B in f32 or f16, blocks of 16 columns of D in one vector register or in some.
#include <bit>

#include "ptx/tcgen05/product/product.hpp"

namespace ptxm::tc {
namespace {

// How D is read and written: f32 words, f16 in the low half of a word (PTX ISA 9.7.16.10.4.1).
struct F32 {
    static float load(u32 word) { return std::bit_cast<float>(word); }
    static u32 store(float x) { return std::bit_cast<u32>(x); }
};
struct F16 {
    static float load(u32 word) { return half_to_float(static_cast<u16>(word)); }
    static u32 store(float x) { return float_to_half(x); }
};

template <class D>
[[gnu::always_inline]] inline Floats load_sums(const u32* d) {
    if constexpr (std::is_same_v<D, F32>) return load_floats(reinterpret_cast<const float*>(d));
    float x[kVectorColumns];
    for (u32 j = 0; j < kVectorColumns; ++j) x[j] = D::load(d[j]);
    return load_floats(x);
}

template <class D>
[[gnu::always_inline]] inline void store_sums(u32* d, const Floats& sum) {
    if constexpr (std::is_same_v<D, F32>) {
        std::memcpy(d, &sum, sizeof sum);
    } else {
        for (u32 j = 0; j < kVectorColumns; ++j) d[j] = D::store(sum[j]);
    }
}

// Zero in a register of its own: GCC would copy one to all the others, on ports that the sums need.
[[gnu::always_inline]] inline Floats zero() {
#ifdef __AVX512F__
    Floats v;
    asm volatile("vpxord %0, %0, %0" : "=v"(v));
    return v;
#else
    return Floats{};
#endif
}

// A NaN is the one of PTX, whatever the operands' were.
[[gnu::always_inline]] inline Floats canonical_sums(const Floats& x) { return x == x ? x : Floats{} + canonical_nan(); }

// kRows rows of D, adjacent in A, kBlocks blocks of 16 columns: every value of B is used kRows times, every one of A
// kBlocks times, and 2 x kRows x kVectors sums are in flight. Only with these loops unrolled does GCC keep the sums in
// registers.
template <class D, u32 kRows, u32 kBlocks>
void float_block(const Sums& s, const float* a, const float* bt, u32* const* d, u32 column) {
    constexpr u32 kVectors = kBlocks * kBlockVectors;
    for (u32 done = 0; done < s.depth; done += s.group) {
        Floats sum[2][kRows][kVectors];
#pragma GCC unroll 2
        for (u32 odd = 0; odd < 2; ++odd) {
#pragma GCC unroll 8
            for (u32 r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
                for (u32 c = 0; c < kVectors; ++c) sum[odd][r][c] = zero();
            }
        }
        for (const float* const end = a + s.group; a != end; a += 2) {
            asm("" : "+r"(a));  // one register for all rows of A: GCC would count in each, on ports that the sums need
#pragma GCC unroll 2
            for (u32 odd = 0; odd < 2; ++odd, bt += kBPitch) {
                Floats b[kVectors];
#pragma GCC unroll 4
                for (u32 c = 0; c < kVectors; ++c) b[c] = load_floats(bt + c * kVectorColumns);
#pragma GCC unroll 8
                for (u32 r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
                    for (u32 c = 0; c < kVectors; ++c)
                        sum[odd][r][c] = multiply_add(a[r * kAPitch + odd], b[c], sum[odd][r][c]);
                }
            }
        }
        const auto add = [&](auto own, auto finish) {
#pragma GCC unroll 8
            for (u32 r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
                for (u32 c = 0; c < kVectors; ++c) {
                    u32* const to = d[r] + column + c * kVectorColumns;
                    store_sums<D>(to, finish(own(to) + (sum[0][r][c] + sum[1][r][c])));
                }
            }
        };
        const auto before = [&s](const u32* at) { return s.accumulate ? load_sums<D>(at) * s.scale : Floats{}; };
        const auto own = [](const u32* at) { return load_sums<D>(at); };
        const auto as_it_is = [](const Floats& x) { return x; };  // a NaN stays one
        if (done + s.group < s.depth)
            done ? add(own, as_it_is) : add(before, as_it_is);
        else
            done ? add(own, canonical_sums) : add(before, canonical_sums);
    }
}

// The last columns of a row, fewer than 16.
template <class D>
void float_end(const Sums& s, const float* a, const float* bt, u32* d, u32 width) {
    for (u32 done = 0; done < s.depth; done += s.group) {
        float sum[2][kBlockColumns] = {};
        for (u32 k = done; k < done + s.group; ++k)
            for (u32 j = 0; j < kBlockColumns; ++j)
                sum[k % 2][j] = __builtin_fmaf(a[k], bt[k * kBPitch + j], sum[k % 2][j]);
        for (u32 j = 0; j < width; ++j) {
            const float own = done ? D::load(d[j]) : s.accumulate ? D::load(d[j]) * s.scale : 0.0f;
            d[j] = D::store(canonical(own + (sum[0][j] + sum[1][j])));
        }
    }
}

// What the host's registers hold: 32 of AVX-512, 16 where vectors are shorter.
constexpr u32 kRowsAtOnce = kBlockVectors == 1 ? 4 : 2, kBlocksAtOnce = kBlockVectors == 1 ? 3 : 1;

// Adjacent rows from `r` on, of `kBlocks` blocks of columns; one where lanes that are disabled leave a gap. Returns how
// many it were.
template <class D, u32 kBlocks>
u32 float_rows(const Sums& s, const Rows& rows, u32 r, u32 end, const float* a, const float* bt, u32 column) {
    const float* from = a + rows.row[r] * kAPitch;
    if (r + kRowsAtOnce <= end && rows.row[r + kRowsAtOnce - 1] == rows.row[r] + kRowsAtOnce - 1) {
        float_block<D, kRowsAtOnce, kBlocks>(s, from, bt + column, rows.d + r, column);
        return kRowsAtOnce;
    }
    float_block<D, 1, kBlocks>(s, from, bt + column, rows.d + r, column);
    return 1;
}

// How many blocks of 16 columns are taken together where so many are left. Three of AVX-512 keep the FMA units busiest.
u32 blocks_at_once(u32 left) { return left >= 3 && left != 4 ? kBlocksAtOnce : std::min({left, 2u, kBlocksAtOnce}); }

// Some blocks of columns at a time. All of a shallow B fits the first-level cache, where D is best taken row by row; of
// a deep one only the columns at hand do.
template <class D>
void float_product(const Sums& s, const Rows& rows, const RowRange& range, const float* a, const float* bt,
                   const Columns& columns) {
    constexpr u32 kShallow = 32;
    const u32 blocks = columns.count / kBlockColumns, end = range.first + range.count;
    const u32 whole = blocks * kBlockColumns, last = columns.first + whole;
    const auto rows_from = [&](u32 r, u32 block, u32 together) {
        const u32 column = columns.first + block * kBlockColumns;
        return together == 3   ? float_rows<D, 3>(s, rows, r, end, a, bt, column)
               : together == 2 ? float_rows<D, 2>(s, rows, r, end, a, bt, column)
                               : float_rows<D, 1>(s, rows, r, end, a, bt, column);
    };
    if (s.depth <= kShallow) {
        for (u32 r = range.first, done = 0; blocks && r < end; r += done)
            for (u32 block = 0, together = 0; block < blocks; block += together) {
                together = blocks_at_once(blocks - block);
                done = rows_from(r, block, together);
            }
    } else {
        for (u32 block = 0, together = 0; block < blocks; block += together) {
            together = blocks_at_once(blocks - block);
            for (u32 r = range.first; r < end;) r += rows_from(r, block, together);
        }
    }
    for (u32 r = range.first; whole < columns.count && r < end; ++r)
        float_end<D>(s, a + rows.row[r] * kAPitch, bt + last, rows.d[r] + last, columns.count - whole);
}

}  // namespace

void multiply_vectors(const Sums& s, Accumulator type, const Rows& rows, const RowRange& range, const float* a,
                      const float* bt, const Columns& columns) {
    if (type == Accumulator::f16)
        float_product<F16>(s, rows, range, a, bt, columns);
    else
        float_product<F32>(s, rows, range, a, bt, columns);
}

}  // namespace ptxm::tc
