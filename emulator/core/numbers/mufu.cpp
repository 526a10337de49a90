#include "numbers/mufu.hpp"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "numbers/mufu_tables.hpp"

namespace ptxm::mufu {
namespace {

constexpr u32 kNan = 0x7FFFFFFF, kInfinity = 0x7F800000, kSign = 0x80000000, kOne = 0x3F800000;
constexpr u32 kFraction = 0x7FFFFF;  // of an f32
constexpr int kBias = 127;

struct Parts {
    u32 sign, fraction;
    int exponent;  // as encoded
};
Parts parts(u32 x) { return {x & kSign, x & kFraction, static_cast<int>(x >> 23 & 0xFF)}; }

// The quadratic of `row` at l, in units of 2^-fraction.
template <u32 kRows>
i64 interpolate(const Function<kRows>& f, u32 row, u32 l) {
    const Row& r = f.rows[row];
    return (static_cast<i64>(r.c0) << f.c0_shift) + f.rounding + static_cast<i64>(r.c1) * l +
           (static_cast<i64>(r.c2) << f.c2_shift) * square(l);
}

// The argument's fraction picks one of 64 segments.
i64 interpolate(const Function<64>& f, u32 fraction) {
    return interpolate(f, fraction >> kOffsetBits, fraction & kOffsetMask);
}

// A positive number in units of 2^-fraction as an f32, truncated.
u32 truncated(i64 value, int fraction) {
    const u64 bits = std::bit_cast<u64>(static_cast<double>(value));
    return static_cast<u32>(bits >> 29) - (static_cast<u32>(1023 - kBias + fraction) << 23);
}

// 1 / (1 + fraction), below one: 24 bits.
u32 reciprocal(u32 fraction) {
    return static_cast<u32>(interpolate(kReciprocal, fraction >> 16, (fraction & 0xFFFF) << 1) >> 16);
}

// 1 / sqrt of 1 + fraction or of twice that, below one: 24 bits.
u32 inverse_root(u32 fraction, bool twice) {
    return static_cast<u32>(
        (twice ? interpolate(kInverseRootOfDouble, fraction) : interpolate(kInverseRoot, fraction)) >> 16);
}

}  // namespace

u32 rsqrt(u32 x) {
    const auto [sign, fraction, exponent] = parts(x);
    if (exponent == 0) return sign | kInfinity;
    if (exponent == 255 && !fraction && !sign) return 0;
    if (exponent == 255 || sign) return kNan;
    const bool twice = (exponent - kBias) & 1;
    const int half = (exponent - kBias) >> 1;
    if (!fraction && !twice) return static_cast<u32>(kBias - half) << 23;
    return static_cast<u32>(kBias - 1 - half) << 23 | (inverse_root(fraction, twice) & kFraction);
}

u32 sqrt(u32 x) {
    const auto [sign, fraction, exponent] = parts(x);
    if (exponent == 0) return sign;
    if (exponent == 255 && !fraction && !sign) return kInfinity;
    if (exponent == 255 || sign) return kNan;
    const bool twice = (exponent - kBias) & 1;
    const i64 root = twice ? interpolate(kRootOfDouble, fraction) >> 16 : interpolate(kRoot, fraction) >> 17;
    return static_cast<u32>(kBias + ((exponent - kBias) >> 1)) << 23 | (static_cast<u32>(root) & kFraction);
}

u32 lg2(u32 x) {
    const auto [sign, fraction, exponent] = parts(x);
    if (exponent == 0) return kSign | kInfinity;
    if (exponent == 255 && !fraction && !sign) return kInfinity;
    if (exponent == 255 || sign) return kNan;
    if (x == kOne) return 0;
    // Two bits below 2^-36 are dropped, and a negative sum is complemented above them, not negated.
    const i64 sum = ((static_cast<i64>(exponent - kBias) << 38) + interpolate(kLog2, fraction)) & ~i64{3};
    const i64 magnitude = sum < 0 ? -sum - 4 : sum;
    return magnitude ? (sum < 0 ? kSign : 0) | truncated(magnitude, 38) : 0;
}

u32 tanh(u32 x) {
    const auto [sign, fraction, exponent] = parts(x);
    if (exponent == 255 && fraction) return kNan;
    if (exponent < kBias - 8) return x;
    if (exponent > kBias + 2) return sign | kOne;
    // Where the rows of an octave begin, from 2^-8 on, and the logarithm of how many it has.
    constexpr u32 first[] = {0, 1, 2, 3, 5, 7, 11, 15, 19, 27, 43}, bits[] = {0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3};
    const u32 octave = static_cast<u32>(exponent - (kBias - 8)), log = bits[octave];
    const u32 row = first[octave] + (fraction >> (23 - log)), l = fraction >> (23 - kOffsetBits - log) & kOffsetMask;
    return sign | truncated(interpolate(kTanh, row, l), 40);
}

namespace {

// The argument in units of 2^-25 of a turn, truncated, and the quadrant that is `ahead` of it; mirrored quadrants take
// the complement of their place.
u32 wave(u32 x, u32 ahead, u32 flip) {
    const auto [sign, fraction, exponent] = parts(x);
    if (exponent == 255) return kNan;
    const u32 significand = exponent ? fraction | 1u << 23 : 0;
    const int shift = exponent - kBias + 2;
    const u32 place = shift >= 0 ? (shift < 25 ? significand << shift : 0) : (shift > -24 ? significand >> -shift : 0);
    const u32 quadrant = (place >> 23) + ahead;
    const i64 value = interpolate(kSine, quadrant & 1 ? ~place & kFraction : place & kFraction);
    const u32 negative = quadrant & 2 ? kSign ^ (sign & flip) : sign & flip;
    return value > 0 ? negative | truncated(value, kSine.fraction) : negative;
}

}  // namespace

u32 sin(u32 x) { return wave(x, 0, kSign); }
u32 cos(u32 x) { return wave(x, 1, 0); }

u32 rcp_double(u32 high) {
    const u32 sign = high & kSign, fraction = high & 0xFFFFF;
    const int exponent = static_cast<int>(high >> 20 & 0x7FF);
    if (exponent == 0x7FF) return fraction ? kNan : sign;
    if (exponent == 0) return sign | 0x7FF00000;
    const int e = 2046 - (fraction ? 1 : 0) - exponent;
    if (e <= 0) return sign;
    return sign | static_cast<u32>(e) << 20 | (fraction ? (reciprocal(fraction << 3) & kFraction) >> 3 : 0);
}

u32 rsqrt_double(u32 high) {
    const u32 sign = high & kSign, fraction = high & 0xFFFFF;
    const int exponent = static_cast<int>(high >> 20 & 0x7FF);
    if (exponent == 0) return sign | 0x7FF00000;
    if (exponent == 0x7FF && !fraction && !sign) return 0;
    if (exponent == 0x7FF || sign) return kNan;
    const bool twice = (exponent - 1023) & 1;
    const int half = (exponent - 1023) >> 1;
    if (!fraction && !twice) return static_cast<u32>(1023 - half) << 20;
    return static_cast<u32>(1022 - half) << 20 | (inverse_root(fraction << 3, twice) & kFraction) >> 3;
}

namespace {

// A function's coefficients by columns. C1 and C2 share a word: 17 bits with the sign, and above them ten.
template <u32 kRows>
struct Columns {
    alignas(64) u32 c0[kRows], c1_c2[kRows];

    explicit constexpr Columns(const Function<kRows>& f) : c0(), c1_c2() {
        for (u32 i = 0; i < kRows; ++i) {
            c0[i] = static_cast<u32>(f.rows[i].c0);
            c1_c2[i] = (static_cast<u32>(f.rows[i].c1) & 0x1FFFF) | static_cast<u32>(f.rows[i].c2) << 17;
        }
    }
};
constexpr Columns<64> kExp2Columns(kExp2);
constexpr Columns<128> kReciprocalColumns(kReciprocal);

// table[row] of 32 lanes.
template <u32 kRows>
void look_up(const u32 (&table)[kRows], const u32* row, u32* value) {
#ifdef __AVX512F__
    for (u32 l = 0; l < kLanes; l += 16) {
        const __m512i at = _mm512_load_si512(row + l);
        __m512i found = _mm512_setzero_si512();
        for (u32 part = 0; part < kRows; part += 32) {
            const __m512i here =
                _mm512_permutex2var_epi32(_mm512_load_si512(table + part), at, _mm512_load_si512(table + part + 16));
            const __mmask16 mine =
                _mm512_cmpeq_epu32_mask(_mm512_srli_epi32(at, 5), _mm512_set1_epi32(static_cast<int>(part / 32)));
            found = _mm512_mask_mov_epi32(found, mine, here);
        }
        _mm512_store_si512(value + l, found);
    }
#else
    for (u32 l = 0; l < kLanes; ++l) value[l] = table[row[l]];
#endif
}

// interpolate for 32 lanes in 32 bits, 24 bits of the result: what is below 2^3 units of C1 times l >> kEven is added
// first. l has kEven zeros at its end, and 2^15 such units are one of the result.
template <int kEven, u32 kRows>
[[gnu::always_inline]] inline void significands(const Columns<kRows>& table, i32 rounding, const u32* row, const u32* l,
                                                u32* result) {
    alignas(64) u32 c0[kLanes], c1_c2[kLanes];
    look_up(table.c0, row, c0);
    look_up(table.c1_c2, row, c1_c2);
    for (u32 lane = 0; lane < kLanes; ++lane) {
        const i32 c1 = static_cast<i32>(c1_c2[lane] << 15) >> 15, c2 = static_cast<i32>(c1_c2[lane] >> 17);
        const i32 step = static_cast<i32>(l[lane] >> kEven);
        const i32 small = (c1 * (step & 7) + c2 * static_cast<i32>(square(l[lane])) + rounding) >> 3;
        const i32 quarters = static_cast<i32>(c0[lane]) + ((c1 * (step >> 3) + small) >> 10);
        result[lane] = static_cast<u32>(quarters) >> 2;
    }
}
static_assert(kExp2.c0_shift == 13 && kExp2.c2_shift == 0 && kExp2.fraction == 38);
static_assert(kReciprocal.c0_shift == 14 && kReciprocal.c2_shift == 1 && kReciprocal.fraction == 40);

// GCC otherwise takes vectors of half the width, whose stores look_up's loads wait for.
#if defined __AVX512F__ && !defined __clang__
#define PTXM_WHOLE_VECTORS [[gnu::target("prefer-vector-width=512")]]
#else
#define PTXM_WHOLE_VECTORS
#endif

}  // namespace

PTXM_WHOLE_VECTORS void ex2(const u32* __restrict x, u32* __restrict result) {
    alignas(64) u32 place[kLanes], row[kLanes], offset[kLanes], significand[kLanes];
    for (u32 l = 0; l < kLanes; ++l) {
        const float value = std::bit_cast<float>(x[l]);
        // In units of 2^-23, truncated. A fraction below zero is the complement of its magnitude's, not its negative.
        const float limited = value > -200.0f ? (value < 200.0f ? value : 200.0f) : -200.0f;
        const i32 units = static_cast<i32>(limited * 0x1p23f);
        place[l] = static_cast<u32>(units - (units < 0 && (units & kFraction) ? 1 : 0));
        row[l] = place[l] >> kOffsetBits & 63;
        offset[l] = place[l] & kOffsetMask;
    }
    significands<0>(kExp2Columns, kExp2.rounding, row, offset, significand);
    for (u32 l = 0; l < kLanes; ++l) {
        const i32 exponent = static_cast<i32>(place[l]) >> 23;
        const u32 number = (static_cast<u32>(exponent + kBias - 1) << 23) + significand[l];
        const u32 finite = exponent >= 128 ? kInfinity : exponent < -126 ? 0 : number;
        result[l] = (x[l] & ~kSign) > kInfinity ? kNan : finite;
    }
}

PTXM_WHOLE_VECTORS void rcp(const u32* __restrict x, u32* __restrict result) {
    alignas(64) u32 row[kLanes], offset[kLanes], significand[kLanes];
    for (u32 l = 0; l < kLanes; ++l) {
        row[l] = x[l] >> 16 & 127;
        offset[l] = (x[l] & 0xFFFF) << 1;
    }
    significands<1>(kReciprocalColumns, kReciprocal.rounding >> 1, row, offset, significand);
    for (u32 l = 0; l < kLanes; ++l) {
        const u32 fraction = x[l] & kFraction, exponent = x[l] >> 23 & 0xFF, sign = x[l] & kSign;
        const u32 power = 2 * kBias - exponent;
        const u32 number = fraction ? ((power - 1) << 23) | (significand[l] & kFraction) : power << 23;
        const u32 normal = exponent >= 2 * kBias || number < 1u << 23 ? 0 : number;
        const u32 finite = exponent == 0 ? kInfinity : normal;
        result[l] = (x[l] & ~kSign) > kInfinity ? kNan : sign | finite;
    }
}

}  // namespace ptxm::mufu
