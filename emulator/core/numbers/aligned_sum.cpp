#include "numbers/aligned_sum.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace ptxm::aligned_sum {
namespace {

bool finite(float x) { return (std::bit_cast<u32>(x) << 1) < 0xFF000000u; }

// The sum where a term is an infinity or NaN.
double special(u32 terms, const float* a, const u16* k, const Columns& b, u32 column, double c) {
    double sum = c;
    for (u32 e = 0; e < terms; ++e) {
        const double y = b.value[k[e]][column];
        if (!finite(a[e]) || !std::isfinite(y)) sum += a[e] * y;
    }
    return std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum;
}

typedef double Doubles __attribute__((vector_size(8 * kColumns)));
typedef i32 Exponents __attribute__((vector_size(4 * kColumns)));
typedef u32 Wholes __attribute__((vector_size(4 * kColumns)));
typedef i64 Words __attribute__((vector_size(8 * kColumns)));

template <class V>
[[gnu::always_inline]] inline V load(const void* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
}
template <class V>
[[gnu::always_inline]] inline V bits_as(const auto& from) {
    return load<V>(&from);
}

// 2^exponents.
[[gnu::always_inline]] inline Doubles powers(const Exponents& exponents) {
    return bits_as<Doubles>(__builtin_convertvector(exponents + 1023, Words) << 52);
}

// Of up to sixteen products, each below 2^27, the whole parts' sum. Those of products that are not finite wrap: whoever
// asked has them already.
[[gnu::always_inline]] inline Doubles whole_sum(u32 first, u32 end, const float* a, const u16* k, const Columns& b,
                                                const Doubles& scale) {
    Wholes sum = {};
    for (u32 e = first; e < end; ++e)
        sum += bits_as<Wholes>(
            __builtin_convertvector(double{a[e]} * load<Doubles>(b.value[k[e]]) * scale, Exponents));  // truncates
    return __builtin_convertvector(bits_as<Exponents>(sum), Doubles);
}

}  // namespace

float to_float(double sum, int kept) {
    if (std::isnan(sum)) return std::bit_cast<float>(0x7FFFFFFFu);
    if (std::isinf(sum)) return static_cast<float>(sum);
    const double value = leading(sum, kept);
    // A denormal of f32 has fewer bits: multiples of 2^-149.
    return static_cast<float>(std::abs(value) < 0x1p-126 ? std::trunc(value * 0x1p149) * 0x1p-149 : value);
}

// Through a float with the last bit set for all bits that are lost: rounding once is rounding right.
u16 to_half(double sum) {
    if (!std::isfinite(sum)) return float_to_half(static_cast<float>(sum));
    const double kept = leading(sum, 24);
    u32 bits = std::bit_cast<u32>(static_cast<float>(kept));
    if (kept != sum) bits |= 1;
    const u16 rounded = float_to_half(std::bit_cast<float>(bits));
    return rounded == 0x8000 ? 0 : rounded;  // whole numbers were added: there is one zero
}

Columns::Columns(const float* b, u32 rows, u32 pitch, int least) {
    u32 largest = 0;
    for (u32 k = 0; k < rows; ++k) {
        for (u32 j = 0; j < kColumns; ++j) {
            const float x = b[k * pitch + j];
            value[k][j] = x;
            exponent[k][j] = exponent_of(x, least);
            largest = std::max(largest, std::bit_cast<u32>(x) << 1);
        }
    }
    finite = largest < 0xFF000000u;
}

Addends::Addends(const float* c, int least) {
    for (u32 j = 0; j < kColumns; ++j) {
        value[j] = c[j];
        exponent[j] = exponent_of(c[j], least);
    }
}

void add(int fraction, u32 terms, const float* a, int least_a, const u16* k, const Columns& b, const Addends& c,
         double* sum) {
    Exponents top = Exponents{} + kLowest;
    const Exponents own = load<Exponents>(c.exponent);
    top = own > top ? own : top;
    u32 largest = 0;
    for (u32 e = 0; e < terms; ++e) {
        const Exponents product = load<Exponents>(b.exponent[k[e]]) + exponent_of(a[e], least_a);
        top = product > top ? product : top;
        largest = std::max(largest, std::bit_cast<u32>(a[e]) << 1);
    }
    const Doubles scale = powers(fraction - top);
    Doubles total;
    bool all_finite = b.finite;
    for (u32 j = 0; j < kColumns; ++j) {
        all_finite &= std::isfinite(c.value[j]);
        total[j] = std::trunc(c.value[j] * scale[j]);
    }
    constexpr u32 kAtOnce = 16;
    for (u32 e = 0; e < terms; e += kAtOnce) total += whole_sum(e, std::min(e + kAtOnce, terms), a, k, b, scale);
    total = total * powers(top - fraction) + 0.0;
    std::memcpy(sum, &total, sizeof total);
    if (all_finite && largest < 0xFF000000u) return;
    for (u32 j = 0; j < kColumns; ++j) {
        bool all = std::isfinite(c.value[j]);
        for (u32 e = 0; e < terms; ++e) all &= finite(a[e]) && std::isfinite(b.value[k[e]][j]);
        if (!all) sum[j] = special(terms, a, k, b, j, c.value[j]);
    }
}

void to_floats(const double* sum, int kept, float* d) {
    u64 most = 0, least = ~u64{0};
    for (u32 j = 0; j < kColumns; ++j) {
        const u64 magnitude = std::bit_cast<u64>(sum[j]) << 1;
        most = std::max(most, magnitude);
        least = std::min(least, magnitude - 1);  // zero is no denormal
    }
    constexpr u64 kInfinity = u64{0x7FF} << 53, kNormal = u64{1023 - 126} << 53;
    if (most >= kInfinity || least < kNormal - 1) {
        for (u32 j = 0; j < kColumns; ++j) d[j] = to_float(sum[j], kept);
        return;
    }
    for (u32 j = 0; j < kColumns; ++j) d[j] = static_cast<float>(leading(sum[j], kept));
}

}  // namespace ptxm::aligned_sum
