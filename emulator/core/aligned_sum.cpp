#include "aligned_sum.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ptxm::aligned_sum {
namespace {

bool finite(float x) { return (std::bit_cast<u32>(x) << 1) < 0xFF000000u; }

// The sum where a term is an infinity or NaN.
double special(u32 terms, const float* a, const u16* k, const Factor& b, u32 column, float c) {
    double sum = c;
    for (u32 e = 0; e < terms; ++e) {
        const float x = a[e], y = b.values[k[e] * b.pitch + column];
        if (!finite(x) || !finite(y)) sum += double{x} * double{y};
    }
    return std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum;
}

}  // namespace

int least_exponent(MatrixType t) {
    switch (t) {
        case MatrixType::f16:
        case MatrixType::e5m2: return -14;
        case MatrixType::e4m3: return -6;
        default: return -126;
    }
}

float to_float(double sum, int kept) {
    if (std::isnan(sum)) return std::bit_cast<float>(0x7FFFFFFFu);
    if (std::isinf(sum)) return static_cast<float>(sum);
    const double value = leading(sum, kept);
    // A denormal of f32 has fewer bits: multiples of 2^-149.
    return static_cast<float>(std::abs(value) < 0x1p-126 ? std::trunc(value * 0x1p149) * 0x1p-149 : value);
}

// Through a float with the last bit set for all bits that are lost: rounding once is rounding right.
u16 to_half(double sum) {
    if (!std::isfinite(sum)) return element::to_half(static_cast<float>(sum));
    const double kept = leading(sum, 24);
    u32 bits = std::bit_cast<u32>(static_cast<float>(kept));
    if (kept != sum) bits |= 1;
    const u16 rounded = element::to_half(std::bit_cast<float>(bits));
    return rounded == 0x8000 ? 0 : rounded;  // whole numbers were added: there is one zero
}

void add(int fraction, u32 terms, const float* a, int least_a, const u16* k, const Factor& b, const float* c,
         int least_c, double* sum) {
    int top[kColumns];
    bool plain = true;
    for (u32 j = 0; j < kColumns; ++j) {
        top[j] = std::max(exponent_of(c[j], least_c), kLowest);
        plain &= finite(c[j]);
    }
    for (u32 e = 0; e < terms; ++e) {
        const int exponent = exponent_of(a[e], least_a);
        const float* row = b.values + k[e] * b.pitch;
        plain &= finite(a[e]);
        for (u32 j = 0; j < kColumns; ++j) {
            top[j] = std::max(top[j], exponent + exponent_of(row[j], b.least));
            plain &= finite(row[j]);
        }
    }
    double scale[kColumns];
    for (u32 j = 0; j < kColumns; ++j) {
        scale[j] = power_of_two(fraction - top[j]);
        sum[j] = std::trunc(c[j] * scale[j]);
    }
    for (u32 e = 0; e < terms; ++e) {
        const double x = a[e];
        const float* row = b.values + k[e] * b.pitch;
        for (u32 j = 0; j < kColumns; ++j) sum[j] += std::trunc(x * row[j] * scale[j]);
    }
    for (u32 j = 0; j < kColumns; ++j) sum[j] = sum[j] * power_of_two(top[j] - fraction) + 0.0;
    if (plain) return;
    for (u32 j = 0; j < kColumns; ++j) {
        bool all = finite(c[j]);
        for (u32 e = 0; e < terms; ++e) all &= finite(a[e]) && finite(b.values[k[e] * b.pitch + j]);
        if (!all) sum[j] = special(terms, a, k, b, j, c[j]);
    }
}

}  // namespace ptxm::aligned_sum
