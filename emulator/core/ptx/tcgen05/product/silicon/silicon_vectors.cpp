// The sums of ptx/tcgen05/product/silicon/silicon.cpp with AVX-512, 64 columns of four rows at a time. Exponents are
// added and compared as bytes, relative to the largest in the row of A and in B. A product is exact in f32; scaled to
// units of the window's end it is below 2^27, the conversion to 32 bits truncates it, and 16 of them do not overflow.
// What does not fit is left undone, for the caller: infinities and NaN, exponents far from those at hand, sums of 2^31
// units.

#ifdef __AVX512BW__
#include <immintrin.h>
#endif

#include "ptx/tcgen05/product/silicon/silicon.hpp"

namespace ptxm::tc::silicon {

#ifdef __AVX512BW__

namespace {

constexpr int kFraction = 25, kBias = 127;
// Of exponents as f32 stores them: between these, neither a product that counts nor its scale leaves the normal
// numbers.
constexpr int kLow = 27, kHigh = 247;
// Of exponents relative to the largest. What is lower is taken for kLeast: a sum of kLeast and less may be wrong.
constexpr int kLeast = -62, kZero = -128;

constexpr __mmask16 kAll = 0xFFFF;

// Twice the bits of the magnitudes of up to 16 numbers.
__m512i magnitudes(const float* x, u32 count = 16) {
    const __mmask16 used = count < 16 ? static_cast<__mmask16>((1u << count) - 1) : kAll;
    return _mm512_slli_epi32(_mm512_maskz_loadu_epi32(used, x), 1);
}

u32 largest(__m512i x) {
    alignas(64) u32 lanes[16];
    _mm512_store_si512(lanes, x);
    return *std::max_element(lanes, lanes + 16);
}

// The exponents of 16 numbers relative to `base`, both as f32 stores them.
__m512i relative(const float* x, int base, int least) {
    const __m512i magnitude = magnitudes(x);
    const __m512i stored =
        _mm512_maskz_max_epi32(kAll, _mm512_srli_epi32(magnitude, 24), _mm512_set1_epi32(least + kBias));
    const __m512i e =
        _mm512_maskz_max_epi32(kAll, _mm512_sub_epi32(stored, _mm512_set1_epi32(base)), _mm512_set1_epi32(kLeast));
    return _mm512_mask_mov_epi32(_mm512_set1_epi32(kZero), _mm512_test_epi32_mask(magnitude, magnitude), e);
}

// The exponent that others are relative to, and whether all numbers are finite.
struct Base {
    int exponent;
    bool finite;
};
Base base_of(u32 magnitude, int least) {
    if (magnitude == 0) return {kBias, true};  // zeros fit everything
    const int stored = static_cast<int>(magnitude >> 24);
    return {std::max(stored, least + kBias), stored != 255};
}

}  // namespace

void pack_a(const Operands& o, u32 rows, u32 depth, int least, Exponents& out) {
    const float* a = o.a;
    for (u32 r = 0; r < rows; ++r, a += o.a_pitch) {
        __m512i most = _mm512_setzero_si512();
        for (u32 k = 0; k < depth; k += 16) most = _mm512_maskz_max_epu32(kAll, most, magnitudes(a + k, depth - k));
        const Base base = base_of(largest(most), least);
        out.base_a[r] = base.exponent;
        out.finite_a[r] = base.finite;
        for (u32 k = 0; k < depth; k += 16) {
            const __m512i byte = _mm512_and_si512(relative(a + k, base.exponent, least), _mm512_set1_epi32(0xFF));
            _mm512_store_si512(&out.a[r][k], _mm512_mullo_epi32(byte, _mm512_set1_epi32(0x01010101)));
        }
    }
}

void pack_b(const Operands& o, u32 columns, u32 depth, int least, Exponents& out) {
    __m512i most = _mm512_setzero_si512();
    for (u32 k = 0; k < depth; ++k)
        for (u32 j = 0; j < columns; j += 16)
            most = _mm512_maskz_max_epu32(kAll, most, magnitudes(o.bt + k * o.b_pitch + j));
    const Base base = base_of(largest(most), least);
    out.base_b = base.exponent;
    out.finite_b = base.finite;
    for (u32 k = 0; k < depth; ++k) {
        for (u32 j = 0; j < columns; j += 16) {
            const __m512i e = relative(o.bt + k * o.b_pitch + j, base.exponent, least);
            _mm_store_si128(reinterpret_cast<__m128i*>(&out.b[k][j]), _mm512_maskz_cvtepi32_epi8(kAll, e));
        }
    }
}

namespace {

template <u32 kRows, u32 kBlocks>
struct Block {
    alignas(64) float scale[kRows][kBlocks][16];  // of products
    alignas(64) float unit[kRows][kBlocks][16];   // of D
    alignas(64) i32 own[kRows][kBlocks][16];      // D in units
    __mmask16 present[kRows][kBlocks];            // products that are not zero
};

// The largest sums of exponents; false where one may be wrong.
template <u32 kRows, u32 kBlocks>
[[gnu::always_inline]] inline bool find_tops(const Exponents& e, const u32* rows, u32 column, u32 first, u32 group,
                                             __m512i (&top)[kRows]) {
    constexpr __mmask64 kUsed = kBlocks == 4 ? ~__mmask64{0} : (__mmask64{1} << 16 * (kBlocks % 4)) - 1;
    const u32* a[kRows];
    for (u32 r = 0; r < kRows; ++r) {
        a[r] = e.a[rows[r]];
        top[r] = _mm512_set1_epi8(static_cast<char>(kZero));
    }
    for (u32 k = first; k < first + group; ++k) {
        const __m512i b = _mm512_loadu_si512(&e.b[k][column]);
#pragma GCC unroll 4
        for (u32 r = 0; r < kRows; ++r)
            top[r] = _mm512_max_epi8(top[r], _mm512_adds_epi8(b, _mm512_set1_epi32(static_cast<i32>(a[r][k]))));
    }
    __mmask64 doubtful = 0;
    for (u32 r = 0; r < kRows; ++r) {
        const __mmask64 some = _mm512_mask_cmpgt_epi8_mask(kUsed, top[r], _mm512_set1_epi8(static_cast<char>(kZero)));
        doubtful |= _mm512_mask_cmple_epi8_mask(some, top[r], _mm512_set1_epi8(kLeast));
    }
    return doubtful == 0;
}

// 2^(the window's units below one), of a window below this exponent.
[[gnu::always_inline]] inline __m512 scale_below(__m512i exponent) {
    const __m512i power = _mm512_sub_epi32(_mm512_set1_epi32(kFraction + 2 * kBias), exponent);
    return _mm512_castsi512_ps(_mm512_slli_epi32(power, 23));
}

// The windows, and D in their units. False where an exponent is too large or too small.
template <bool kScaled, u32 kRows, u32 kBlocks>
[[gnu::always_inline]] inline bool find_windows(const Exponents& e, const Group& g, const u32* rows,
                                                const __m512i (&top)[kRows], u32* const* d, u32 column,
                                                Block<kRows, kBlocks>& out) {
    const __m512i lowest = _mm512_set1_epi32(kLow), one = _mm512_set1_epi32(2 * kBias << 23);
    __m512i highest = _mm512_setzero_si512();
    __mmask16 low = 0;
    for (u32 r = 0; r < kRows; ++r) {
        const __m512i base = _mm512_set1_epi32(e.base_a[rows[r]] + e.base_b - kBias);
        alignas(64) std::int8_t bytes[64];
        _mm512_store_si512(bytes, top[r]);
#pragma GCC unroll 4
        for (u32 c = 0; c < kBlocks; ++c) {
            const __m512i sum =
                _mm512_maskz_cvtepi8_epi32(kAll, _mm_load_si128(reinterpret_cast<const __m128i*>(bytes + 16 * c)));
            const __mmask16 present = _mm512_cmpgt_epi32_mask(sum, _mm512_set1_epi32(kZero));
            const __m512 own = g.accumulate ? _mm512_loadu_ps(d[r] + column + 16 * c) : _mm512_setzero_ps();
            const __m512i magnitude = _mm512_slli_epi32(_mm512_castps_si512(own), 1);
            __m512i of_own = _mm512_srli_epi32(magnitude, 24), shift;
            if constexpr (kScaled) {  // the window is that of products without scales
                shift = _mm512_add_epi32(_mm512_set1_epi32(g.scale_a[rows[r]]),
                                         _mm512_loadu_si512(g.scale_b + column + 16 * c));
                of_own = _mm512_maskz_sub_epi32(_mm512_test_epi32_mask(magnitude, magnitude), of_own, shift);
            }
            __m512i exponent = _mm512_maskz_max_epi32(kAll, _mm512_maskz_add_epi32(present, sum, base), of_own);
            exponent = _mm512_maskz_max_epi32(kAll, exponent, lowest);
            highest = _mm512_maskz_max_epi32(kAll, highest, exponent);
            _mm512_store_ps(out.scale[r][c], scale_below(exponent));
            if constexpr (kScaled) {
                exponent = _mm512_add_epi32(exponent, shift);
                highest = _mm512_maskz_max_epi32(kAll, highest, exponent);
                low |= _mm512_mask_cmplt_epi32_mask(present, exponent, lowest);
            }
            const __m512 scale = scale_below(exponent);
            _mm512_store_si512(out.own[r][c], _mm512_maskz_cvttps_epi32(kAll, _mm512_mul_ps(own, scale)));
            _mm512_store_si512(out.unit[r][c], _mm512_sub_epi32(one, _mm512_castps_si512(scale)));
            out.present[r][c] = present;
        }
    }
    return low == 0 && _mm512_cmpgt_epi32_mask(highest, _mm512_set1_epi32(kHigh)) == 0;
}

// The sums of up to 16 products each, in units.
template <u32 kRows, u32 kBlocks>
[[gnu::always_inline]] inline void add_products(const float* const (&a)[kRows], const float* bt, u32 pitch, u32 terms,
                                                const Block<kRows, kBlocks>& block, __m512i (&sum)[kRows][kBlocks]) {
#pragma GCC unroll 4
    for (u32 r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (u32 c = 0; c < kBlocks; ++c) sum[r][c] = _mm512_setzero_si512();
    }
    for (u32 k = 0; k < terms; ++k, bt += pitch) {
        __m512 b[kBlocks];
#pragma GCC unroll 4
        for (u32 c = 0; c < kBlocks; ++c) b[c] = _mm512_loadu_ps(bt + 16 * c);
#pragma GCC unroll 4
        for (u32 r = 0; r < kRows; ++r) {
            const __m512 x = _mm512_set1_ps(a[r][k]);
#pragma GCC unroll 4
            for (u32 c = 0; c < kBlocks; ++c) {
                const __m512 units = _mm512_mul_ps(_mm512_mul_ps(x, b[c]), _mm512_load_ps(block.scale[r][c]));
                // Written out: GCC would copy all sums at the end of the loop.
                __m512i own = sum[r][c];
                asm("vpaddd %1, %0, %0" : "+v"(own) : "v"(_mm512_maskz_cvttps_epi32(kAll, units)));
                sum[r][c] = own;
            }
        }
    }
}

// x += y; what overflows sets the sign of `overflow`.
[[gnu::always_inline]] inline void add_checked(__m512i& x, __m512i y, __m512i& overflow) {
    constexpr int kAlikeButNotTheSum = 0x42;  // of x, y and their sum
    const __m512i sum = _mm512_add_epi32(x, y);
    overflow = _mm512_or_si512(overflow, _mm512_ternarylogic_epi32(x, y, sum, kAlikeButNotTheSum));
    x = sum;
}

// One MMA's products. False, with nothing done, where they do not fit.
template <u32 kRows, u32 kBlocks>
bool add_group(const Exponents& e, const Group& g, const u32* rows, u32* const* d, u32 column) {
    constexpr u32 kAtOnce = 16;
    __m512i top[kRows];
    Block<kRows, kBlocks> block;
    if (!find_tops<kRows, kBlocks>(e, rows, column, g.first, g.count, top)) return false;
    const bool fits = g.scale_a ? find_windows<true>(e, g, rows, top, d, column, block)
                                : find_windows<false>(e, g, rows, top, d, column, block);
    if (!fits) return false;
    const Operands& o = g.operands;
    const float* a[kRows];
    for (u32 r = 0; r < kRows; ++r) a[r] = o.a + rows[r] * o.a_pitch + g.first;
    const float* bt = o.bt + g.first * o.b_pitch + column;
    __m512i sum[kRows][kBlocks], overflow = _mm512_setzero_si512();
    for (u32 done = 0; done < g.count; done += kAtOnce) {
        add_products<kRows, kBlocks>(a, bt, o.b_pitch, std::min(kAtOnce, g.count - done), block, sum);
        bt += kAtOnce * o.b_pitch;
#pragma GCC unroll 4
        for (u32 r = 0; r < kRows; ++r) {
            a[r] += kAtOnce;
#pragma GCC unroll 4
            for (u32 c = 0; c < kBlocks; ++c) {
                add_checked(sum[r][c], _mm512_load_si512(block.own[r][c]), overflow);
                if (done + kAtOnce < g.count) _mm512_store_si512(block.own[r][c], sum[r][c]);
            }
        }
    }
    if (_mm512_movepi32_mask(overflow)) return false;
#pragma GCC unroll 4
    for (u32 r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (u32 c = 0; c < kBlocks; ++c) {
            u32* const to = d[r] + column + 16 * c;
            const __m512 unit = _mm512_load_ps(block.unit[r][c]);
            const __m512 whole =
                _mm512_maskz_cvt_roundepi32_ps(kAll, sum[r][c], _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
            // D alone stays what it is, but for a zero's sign.
            const __m512 own = g.accumulate ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
            const __m512 alone = _mm512_add_ps(own, _mm512_setzero_ps());
            _mm512_storeu_ps(to, _mm512_mask_mul_ps(alone, block.present[r][c], whole, unit));
        }
    }
    return true;
}

template <u32 kRows>
bool add_blocks(const Exponents& e, const Group& g, const u32* rows, u32* const* d, u32 column, u32 blocks) {
    switch (blocks) {
        case 4: return add_group<kRows, 4>(e, g, rows, d, column);
        case 3: return add_group<kRows, 3>(e, g, rows, d, column);
        case 2: return add_group<kRows, 2>(e, g, rows, d, column);
        default: return add_group<kRows, 1>(e, g, rows, d, column);
    }
}

bool fits(const Exponents& e, u32 row) {
    return e.finite_a[row] && e.finite_b && e.base_a[row] + e.base_b - kBias + kLeast >= kLow;
}

}  // namespace

bool add_with_vectors(const Exponents& e, const Group& g, const u32* rows, u32 count, u32* const* d, u32 column,
                      u32 blocks) {
    for (u32 r = 0; r < count; ++r)
        if (!fits(e, rows[r])) return false;
    return count == kRowsAtOnce ? add_blocks<kRowsAtOnce>(e, g, rows, d, column, blocks)
                                : add_blocks<1>(e, g, rows, d, column, blocks);
}

#else

void pack_a(const Operands&, u32, u32, int, Exponents&) {}
void pack_b(const Operands&, u32, u32, int, Exponents&) {}
bool add_with_vectors(const Exponents&, const Group&, const u32*, u32, u32* const*, u32, u32) { return false; }

#endif

}  // namespace ptxm::tc::silicon
