#include "ptx/textures/filter.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ptxm {
namespace {

// A floating-point format of elements and results: bits of a significand, and the exponent of the least normal number.
struct Precision {
    i32 bits, least;
};

constexpr i32 kGuardBits = 4, kWeightBits = 8;

// The exponent of x, which has one.
i32 exponent_of(float x) { return static_cast<i32>(std::bit_cast<u32>(x) >> 23 & 0xFF) - 127; }

double power_of_two(i32 n) { return std::bit_cast<double>(static_cast<u64>(1023 + n) << 52); }

i32 product(i32 weight, i32 other) { return (weight * other + kWhole / 2) >> kWeightBits; }

// Elements are cut to a common fixed point, four bits finer than the largest one's last. Their sum is exact, and is
// rounded to the nearest number of the format, half-way away from zero.
float sum_of_floats(const Corners<float>& values, const Corners<i32>& weights, Precision p) {
    i32 largest = p.least;
    for (const float value : values) largest = std::max(largest, exponent_of(value));
    const i32 point = p.bits - 1 + kGuardBits - largest;
    const double scale = power_of_two(point);
    i64 sum = 0;
    for (u32 k = 0; k < kMostCorners; ++k) sum += static_cast<i64>(static_cast<double>(values[k]) * scale) * weights[k];
    u64 magnitude = static_cast<u64>(sum < 0 ? -sum : sum);
    const i32 width = static_cast<i32>(std::bit_width(magnitude));
    // What is below the format's denormal numbers is dropped as well.
    const i32 drop = std::max(width - p.bits, p.least - (p.bits - 1) + point + kWeightBits);
    if (drop > 0) magnitude = (magnitude + (1ull << (drop - 1))) >> drop << drop;
    const double result = static_cast<double>(magnitude) * power_of_two(-point - kWeightBits);
    return static_cast<float>(sum < 0 ? -result : result);
}

// Bytes as fractions are summed in 65535ths, half-way up.
float sum_of_bytes(const Corners<float>& values, const Corners<i32>& weights) {
    constexpr float kOne = 65535.0f;
    i32 sum = 0;
    for (u32 k = 0; k < kMostCorners; ++k)
        sum += static_cast<i32>(std::clamp(values[k], 0.0f, 1.0f) * kOne + 0.5f) * weights[k];
    return static_cast<float>((sum + kWhole / 2) >> kWeightBits) / kOne;
}

}  // namespace

Corners<i32> corner_weights(const std::array<i32, kMostDimensions>& behind) {
    Corners<i32> out;
    for (u32 z = 0; z < 2; ++z) {
        const i32 plane = z ? behind[2] : kWhole - behind[2];
        const i32 right = product(plane, behind[0]), left = plane - right;
        // Of the left column it is the element in front whose product is rounded, of the right one the other.
        const i32 left_front = product(left, kWhole - behind[1]), right_behind = product(right, behind[1]);
        out[4 * z] = left_front;
        out[4 * z + 1] = right - right_behind;
        out[4 * z + 2] = left - left_front;
        out[4 * z + 3] = right_behind;
    }
    return out;
}

float weighted_sum(const Image& m, const Corners<float>& values, const Corners<i32>& weights) {
    if (m.texel == Texel::u8_) return sum_of_bytes(values, weights);
    float total = 0;
    bool finite = true;
    for (u32 k = 0; k < kMostCorners; ++k) {
        finite = finite && std::isfinite(values[k]);
        total += values[k] * static_cast<float>(weights[k]);
    }
    if (!finite) return std::isnan(total) ? std::bit_cast<float>(0x7FFFFFFFu) : total;
    return sum_of_floats(values, weights, m.texel == Texel::f16 ? Precision{11, -14} : Precision{24, -126});
}

}  // namespace ptxm
