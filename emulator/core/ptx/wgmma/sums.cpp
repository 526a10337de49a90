#include "ptx/wgmma/sums.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "machine/machine.hpp"
#include "machine/stopwatch.hpp"
#include "numbers/vector_shuffle.hpp"
#include "ptx/mma/matrix.hpp"

namespace ptxm::wgmma_sums {

using namespace aligned_sum;

namespace {

typedef float Values __attribute__((vector_size(4 * kColumns)));
typedef i32 Exponents8 __attribute__((vector_size(4 * kColumns)));
typedef std::int16_t Narrow8 __attribute__((vector_size(2 * kColumns)));

// The exponents of eight numbers at once, and the lowest and highest but of zero. `least`: of their format.
class ExponentRange {
public:
    explicit ExponentRange(int least) : least_(Exponents8{} + least) {}
    [[gnu::always_inline]] Narrow8 see(const Values& x) {
        const Exponents8 magnitude = std::bit_cast<Exponents8>(x) & 0x7FFFFFFF, stored = magnitude >> 23;
        const Exponents8 own = stored - 127, exponent = own > least_ ? own : least_;
        const Exponents8 e = magnitude == 0 ? Exponents8{} + kNothing : exponent;
        const Exponents8 counted = magnitude == 0 ? low_ : exponent;
        low_ = counted < low_ ? counted : low_;
        high_ = e > high_ ? e : high_;
        return __builtin_convertvector(e, Narrow8);
    }
    template <class Packed>
    void put(Packed& out) const {
        out.low = low_[0];
        out.high = high_[0];
        for (u32 i = 1; i < kColumns; ++i)
            out.low = std::min(out.low, low_[i]), out.high = std::max(out.high, high_[i]);
    }

private:
    Exponents8 least_, low_ = Exponents8{} + std::numeric_limits<int>::max(), high_ = Exponents8{} + kNothing;
};

}  // namespace

void pack_b(const WgmmaShape& s, const float* b, PackedB& out) {
    ExponentRange range(least_exponent(s.b));
    for (u32 k = 0; k < s.k; ++k) {
        for (u32 n = 0; n < s.n; n += kColumns) {
            Values x;
            std::memcpy(&x, b + k * kMaxN + n, sizeof x);
            x = shuffled<0, 2, 4, 6, 1, 3, 5, 7>(x, x);
            std::memcpy(out.value[k] + n, &x, sizeof x);
            const Narrow8 e = range.see(x);
            std::memcpy(out.exponent[k] + n, &e, sizeof e);
        }
    }
    range.put(out);
}

namespace {

// Exponents of products between these: neither a product nor its scale leaves the normal numbers of f32.
constexpr int kLow = -100, kHigh = 125;

// A for the lanes of D's registers: [half of the rows][k][lane].
struct PackedA {
    PackedA() {}  // leaves the arrays as they are
    alignas(64) float value[2][kMaxK][kLanes];
    alignas(64) std::int16_t exponent[2][kMaxK][kLanes];
    int low = std::numeric_limits<int>::max(), high = kNothing;
};

void pack_a(u32 depth, const float* a, int least, PackedA& out) {
    ExponentRange range(least);
    for (u32 row = 0; row < kWgmmaRows; ++row) {
        const u32 half = row / 8, lane = row % 8 * 4;
        for (u32 first = 0; first < depth; first += kColumns) {
            Values x;
            std::memcpy(&x, a + row * kMaxK + first, sizeof x);
            const Narrow8 e = range.see(x);
#pragma GCC unroll 8
            for (u32 k = 0; k < kColumns; ++k) {
                const float values[] = {x[k], x[k], x[k], x[k]};
                const std::int16_t exponents[] = {e[k], e[k], e[k], e[k]};
                std::memcpy(out.value[half][first + k] + lane, values, sizeof values);
                std::memcpy(out.exponent[half][first + k] + lane, exponents, sizeof exponents);
            }
        }
    }
    range.put(out);
}

// In one register of the host: of a vector in several, GCC keeps each part in memory.
#if defined(__AVX512BW__)
constexpr u32 kWide = 16;
#elif defined(__AVX2__)
constexpr u32 kWide = 8;
#else
constexpr u32 kWide = 4;
#endif
typedef float Floats __attribute__((vector_size(4 * kWide)));
typedef i32 Ints __attribute__((vector_size(4 * kWide)));
typedef std::int16_t Shorts __attribute__((vector_size(4 * kWide)));
constexpr u32 kShorts = 2 * kWide;

template <class V>
[[gnu::always_inline]] inline V load_vector(const void* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

// Four columns, for all rows. Written out: GCC's shuffle goes through memory.
[[gnu::always_inline]] inline Floats repeat(const float* four) {
#if defined(__AVX512BW__)
    return _mm512_maskz_broadcast_f32x4(0xFFFF, _mm_loadu_ps(four));
#elif defined(__AVX2__)
    const __m128 once = _mm_loadu_ps(four);
    return _mm256_set_m128(once, once);
#else
    return load_vector<Floats>(four);
#endif
}
[[gnu::always_inline]] inline Shorts repeat(const std::int16_t* four) {
    long long bits;
    std::memcpy(&bits, four, sizeof bits);
#if defined(__AVX512BW__)
    return reinterpret_cast<Shorts>(_mm512_set1_epi64(bits));
#elif defined(__AVX2__)
    return reinterpret_cast<Shorts>(_mm256_set1_epi64x(bits));
#else
    const long long twice[] = {bits, bits};
    return load_vector<Shorts>(twice);
#endif
}

// One register of D: `column` is where its columns start in B.
void add_products(u32 depth, const PackedA& a, u32 half, const PackedB& b, u32 column, Precision precision,
                  float (&d)[kLanes]) {
    std::int16_t top[kLanes];
    for (u32 l = 0; l < kLanes; ++l) top[l] = static_cast<std::int16_t>(std::max(exponent_of(d[l], -126), kLowest));
    constexpr u32 kTops = kLanes / kShorts;
    Shorts largest[kTops];
    std::memcpy(largest, top, sizeof top);
    for (u32 k = 0; k < depth; ++k) {
        const Shorts of_b = repeat(&b.exponent[k][column]);
#pragma GCC unroll 4
        for (u32 v = 0; v < kTops; ++v) {
            const Shorts e = load_vector<Shorts>(&a.exponent[half][k][v * kShorts]) + of_b;
            largest[v] = e > largest[v] ? e : largest[v];
        }
    }
    std::memcpy(top, largest, sizeof top);
    float scale[kLanes];
    for (u32 l = 0; l < kLanes; ++l)
        scale[l] = std::bit_cast<float>((precision.fraction - std::max<int>(top[l], kLow) + 127) << 23);
    // A term is less than 2^28 in size: sixteen of them could just overflow.
    constexpr u32 kParts = 2, kVectors = kLanes / kWide;
    Ints sum[kParts][kVectors] = {};
    Floats scales[kVectors];
    std::memcpy(scales, scale, sizeof scale);
    for (u32 k = 0; k < depth; k += kParts) {
#pragma GCC unroll 2
        for (u32 p = 0; p < kParts; ++p) {
            const Floats y = repeat(&b.value[k + p][column]);
#pragma GCC unroll 8
            for (u32 v = 0; v < kVectors; ++v) {
                const Floats x = load_vector<Floats>(&a.value[half][k + p][v * kWide]);
                sum[p][v] += __builtin_convertvector(x * y * scales[v], Ints);  // truncates
            }
        }
    }
    i32 parts[kParts][kLanes];
    std::memcpy(parts, sum, sizeof parts);
    for (u32 l = 0; l < kLanes; ++l) {
        const double own = std::trunc(d[l] * power_of_two(precision.fraction - top[l]));
        const double total = own + static_cast<double>(parts[0][l]) + static_cast<double>(parts[1][l]);
        d[l] = static_cast<float>(leading(total, precision.kept) * power_of_two(top[l] - precision.fraction));
    }
}

#ifdef __AVX512BW__

// The same with AVX-512 alone: sums in 32 bits, which a conversion truncates to 24. False, with nothing done, where a
// sum needs more, or alignment would have to go below kLow.
bool add_products_quickly(u32 depth, const PackedA& a, u32 half, const PackedB& b, u32 column, Precision precision,
                          float (&d)[kLanes]) {
    constexpr u32 kParts = 2, kVectors = kLanes / kWide;
    constexpr __mmask16 kAll = 0xFFFF;
    __m512i largest = _mm512_set1_epi16(kNothing);
    for (u32 k = 0; k < depth; ++k) {
        long long four;
        std::memcpy(&four, &b.exponent[k][column], sizeof four);
        const __m512i e = _mm512_add_epi16(_mm512_load_si512(a.exponent[half][k]), _mm512_set1_epi64(four));
        largest = _mm512_max_epi16(largest, e);
    }
    const __m512i lowest = _mm512_set1_epi32(kLow), bias = _mm512_set1_epi32(127);
    const __m512i fraction = _mm512_set1_epi32(precision.fraction);
    const __m512i products[kVectors] = {_mm512_maskz_cvtepi16_epi32(kAll, _mm512_castsi512_si256(largest)),
                                        _mm512_maskz_cvtepi16_epi32(kAll, _mm512_extracti64x4_epi64(largest, 1))};
    __m512i top[kVectors], sum[kParts][kVectors];
    __m512 scale[kVectors];
    __mmask16 below = 0;
#pragma GCC unroll 2
    for (u32 v = 0; v < kVectors; ++v) {
        const __m512 own = _mm512_loadu_ps(d + v * kWide);
        const __m512i magnitude = _mm512_slli_epi32(_mm512_castps_si512(own), 1);
        const __m512i exponent = _mm512_sub_epi32(_mm512_srli_epi32(magnitude, 24), bias);
        top[v] = _mm512_maskz_max_epi32(kAll, products[v], exponent);
        below |= _mm512_mask_cmplt_epi32_mask(_mm512_test_epi32_mask(magnitude, magnitude), top[v], lowest);
        top[v] = _mm512_maskz_max_epi32(kAll, top[v], lowest);
        const __m512i power = _mm512_add_epi32(_mm512_sub_epi32(fraction, top[v]), bias);
        scale[v] = _mm512_castsi512_ps(_mm512_slli_epi32(power, 23));
        sum[0][v] = _mm512_maskz_cvttps_epi32(kAll, _mm512_mul_ps(own, scale[v]));
        sum[1][v] = _mm512_setzero_si512();
    }
    if (below) return false;
    for (u32 k = 0; k < depth; k += kParts) {
#pragma GCC unroll 2
        for (u32 p = 0; p < kParts; ++p) {
            const __m512 y = repeat(&b.value[k + p][column]);
#pragma GCC unroll 2
            for (u32 v = 0; v < kVectors; ++v) {
                const __m512 x = _mm512_load_ps(&a.value[half][k + p][v * kWide]);
                const __m512 term = _mm512_mul_ps(_mm512_mul_ps(x, y), scale[v]);
                sum[p][v] = _mm512_add_epi32(sum[p][v], _mm512_maskz_cvttps_epi32(kAll, term));
            }
        }
    }
    __m512i total[kVectors], overflow = _mm512_setzero_si512();
#pragma GCC unroll 2
    for (u32 v = 0; v < kVectors; ++v) {
        total[v] = _mm512_add_epi32(sum[0][v], sum[1][v]);
        overflow = _mm512_or_epi32(
            overflow, _mm512_and_epi32(_mm512_xor_epi32(sum[0][v], total[v]), _mm512_xor_epi32(sum[1][v], total[v])));
    }
    if (_mm512_movepi32_mask(overflow)) return false;
    const __m512i kept = _mm512_set1_epi32(static_cast<i32>(~0u << (24 - precision.kept)));
#pragma GCC unroll 2
    for (u32 v = 0; v < kVectors; ++v) {
        const __m512 whole = _mm512_maskz_cvt_roundepi32_ps(kAll, total[v], _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
        const __m512 leading = _mm512_castsi512_ps(_mm512_and_epi32(_mm512_castps_si512(whole), kept));
        const __m512 low = _mm512_maskz_cvtepi32_ps(kAll, _mm512_sub_epi32(top[v], fraction));
        _mm512_storeu_ps(d + v * kWide, _mm512_maskz_scalef_ps(kAll, leading, low));
    }
    return true;
}

#else

bool add_products_quickly(u32, const PackedA&, u32, const PackedB&, u32, Precision, float (&)[kLanes]) { return false; }

#endif

bool finite(const float (&d)[kLanes]) {
    u32 largest = 0;
    for (u32 l = 0; l < kLanes; ++l) largest = std::max(largest, std::bit_cast<u32>(d[l]) << 1);
    return largest < 0xFF000000u;
}

}  // namespace

bool multiply_in_registers(const WgmmaOperation& op, u32 warp, const float* a, const PackedB& b) {
    const WgmmaShape& s = op.shape;
    PackedA packed;
    pack_a(s.k, a, least_exponent(s.a), packed);
    const bool zeros = packed.high == kNothing || b.high == kNothing;
    if (!zeros && (packed.low + b.low < kLow || packed.high + b.high > kHigh)) return false;
    Warp& w = *op.warps[warp];
    const i32* units = op.units[warp];
    const u32 registers = s.n / 2;
    if (op.accumulate)
        for (u32 e = 0; e < registers; ++e)
            if (!finite(*w.reg<float[kLanes]>(units[e]))) return false;
    const Precision precision = precision_of(s.a);
    const Stopwatch watch(machine_of(w).stats.product_seconds);
    for (u32 e = 0; e < registers; ++e) {
        float (&d)[kLanes] = *w.reg<float[kLanes]>(units[e]);
        if (!op.accumulate) std::fill(std::begin(d), std::end(d), 0.0f);
        const u32 half = e / 2 % 2, column = e / 4 * 8 + e % 2 * 4;
        if (!add_products_quickly(s.k, packed, half, b, column, precision, d))
            add_products(s.k, packed, half, b, column, precision, d);
    }
    return true;
}

}  // namespace ptxm::wgmma_sums
