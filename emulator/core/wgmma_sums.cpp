#include "wgmma_sums.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#ifdef __AVX512BW__
#include <immintrin.h>
#endif

#include "matrix.hpp"

namespace ptxm::wgmma_sums {

using namespace aligned_sum;

void pack_b(const WgmmaShape& s, const float* b, PackedB& out) {
    const int least = least_exponent(s.b);
    int low = std::numeric_limits<int>::max(), high = kNothing;
    for (u32 k = 0; k < s.k; ++k) {
        for (u32 n = 0; n < s.n; n += 8)
            for (u32 i = 0; i < 8; ++i) out.value[k][n + i] = b[k * kMaxN + n + i % 4 * 2 + i / 4];
        for (u32 n = 0; n < s.n; ++n) {
            const int e = exponent_of(out.value[k][n], least);
            out.exponent[k][n] = static_cast<std::int16_t>(e);
            low = std::min(low, e == kNothing ? low : e);
            high = std::max(high, e);
        }
    }
    out.low = low;
    out.high = high;
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
    for (u32 h = 0; h < 2; ++h) {
        for (u32 k = 0; k < depth; ++k) {
            for (u32 r = 0; r < 8; ++r) {
                const float x = a[(8 * h + r) * kMaxK + k];
                const int e = exponent_of(x, least);
                for (u32 i = 0; i < 4; ++i) {
                    out.value[h][k][4 * r + i] = x;
                    out.exponent[h][k][4 * r + i] = static_cast<std::int16_t>(e);
                }
                out.low = std::min(out.low, e == kNothing ? out.low : e);
                out.high = std::max(out.high, e);
            }
        }
    }
}

constexpr u32 kWide = 16;
typedef float Floats __attribute__((vector_size(4 * kWide)));
typedef i32 Ints __attribute__((vector_size(4 * kWide)));
typedef std::int16_t Shorts __attribute__((vector_size(2 * kLanes)));

template <class V>
[[gnu::always_inline]] inline V load_vector(const void* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

// Four columns, for all rows. Written out for AVX-512: GCC's shuffle goes through memory.
[[gnu::always_inline]] inline Floats repeat(const float* four) {
#ifdef __AVX512BW__
    return _mm512_maskz_broadcast_f32x4(0xFFFF, _mm_loadu_ps(four));
#else
    Floats v;
    for (u32 l = 0; l < kWide; ++l) v[l] = four[l % 4];
    return v;
#endif
}
[[gnu::always_inline]] inline Shorts repeat(const std::int16_t* four) {
#ifdef __AVX512BW__
    long long bits;
    std::memcpy(&bits, four, sizeof bits);
    return reinterpret_cast<Shorts>(_mm512_set1_epi64(bits));
#else
    Shorts v;
    for (u32 l = 0; l < kLanes; ++l) v[l] = four[l % 4];
    return v;
#endif
}

// One register of D: `column` is where its columns start in B.
void add_products(u32 depth, const PackedA& a, u32 half, const PackedB& b, u32 column, Precision precision,
                  float (&d)[kLanes]) {
    std::int16_t top[kLanes];
    for (u32 l = 0; l < kLanes; ++l) top[l] = static_cast<std::int16_t>(std::max(exponent_of(d[l], -126), kLowest));
    Shorts largest = load_vector<Shorts>(top);
    for (u32 k = 0; k < depth; ++k) {
        const Shorts e = load_vector<Shorts>(a.exponent[half][k]) + repeat(&b.exponent[k][column]);
        largest = e > largest ? e : largest;
    }
    std::memcpy(top, &largest, sizeof top);
    float scale[kLanes];
    for (u32 l = 0; l < kLanes; ++l)
        scale[l] = std::bit_cast<float>((precision.fraction - std::max<int>(top[l], kLow) + 127) << 23);
    // A term is less than 2^28 in size: sixteen of them could just overflow.
    constexpr u32 kParts = 2, kVectors = kLanes / kWide;
    Ints sum[kParts][kVectors] = {};
    const Floats scales[kVectors] = {load_vector<Floats>(scale), load_vector<Floats>(scale + kWide)};
    for (u32 k = 0; k < depth; k += kParts) {
#pragma GCC unroll 2
        for (u32 p = 0; p < kParts; ++p) {
            const Floats y = repeat(&b.value[k + p][column]);
#pragma GCC unroll 2
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
        add_products(s.k, packed, e / 2 % 2, b, e / 4 * 8 + e % 2 * 4, precision, d);
    }
    return true;
}

}  // namespace ptxm::wgmma_sums
