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

// A whole number of 2^-point.
struct Fixed {
    i64 number;
    i32 point;
};

// Of four elements, cut to a common fixed point four bits finer than the largest one's last: the sum, which is exact.
Fixed sum_of_plane(const float* values, const i32* weights, Precision p) {
    i32 largest = p.least;
    for (u32 k = 0; k < 4; ++k)
        if (weights[k]) largest = std::max(largest, exponent_of(values[k]));
    const i32 point = p.bits - 1 + kGuardBits - largest;
    const double scale = power_of_two(point);
    i64 sum = 0;
    for (u32 k = 0; k < 4; ++k)  // what has no weight may be too large for the point
        if (weights[k]) sum += static_cast<i64>(static_cast<double>(values[k]) * scale) * weights[k];
    return {sum, point + kWeightBits};
}

// The finer one of two planes is cut downwards to the other's point. Their sum is rounded to the nearest number of the
// format, half-way away from zero.
float sum_of_floats(const Corners<float>& values, const Corners<i32>& weights, Precision p) {
    const Fixed near = sum_of_plane(&values[0], &weights[0], p), far = sum_of_plane(&values[4], &weights[4], p);
    const i32 point = std::min(near.point, far.point);
    const auto cut = [&](Fixed f) { return f.number >> std::min(f.point - point, 63); };
    const i64 sum = cut(near) + cut(far);
    u64 magnitude = static_cast<u64>(sum < 0 ? -sum : sum);
    const i32 width = static_cast<i32>(std::bit_width(magnitude));
    // What is below the format's denormal numbers is dropped as well.
    const i32 drop = std::max(width - p.bits, p.least - (p.bits - 1) + point);
    if (drop > 0) magnitude = (magnitude + (1ull << (drop - 1))) >> drop << drop;
    const double result = static_cast<double>(magnitude) * power_of_two(-point);
    return static_cast<float>(sum < 0 ? -result : result);
}

// The integer that stands for 1.
i32 one_of(Texel t) { return t == Texel::u8_ ? 255 : t == Texel::s8 ? 127 : t == Texel::u16_ ? 65535 : 32767; }

// Unsigned fractions are summed in 65535ths and signed ones in 32767ths, half-way up. The least integer is summed as it
// is, and may give less than -1 before the end.
float sum_of_fractions(Texel t, const Corners<u32>& elements, const Corners<i32>& weights) {
    i32 sum = 0;
    for (u32 k = 0; k < kMostCorners; ++k) sum += static_cast<i32>(elements[k]) * weights[k];
    if (t == Texel::u8_) sum *= 257;
    if (t == Texel::s8) {
        // 32767 / 127 is 256 + 2 + 1/128 and a little: what is added to 256 of them comes from the sum's upper bits.
        const i32 upper = sum >> 4;
        sum += (upper + (upper >> 8) + 4) >> 3;
    } else {
        sum = (sum + kWhole / 2) >> kWeightBits;
    }
    const i32 one = t == Texel::u8_ || t == Texel::u16_ ? 65535 : 32767;
    return static_cast<float>(std::max(sum, -one)) / static_cast<float>(one);
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

u32 corners_between(const std::array<i32, kMostDimensions>& behind) {
    u32 out = 0;
    for (u32 k = 0; k < kMostCorners; ++k) {
        bool between = true;
        for (u32 d = 0; d < kMostDimensions; ++d)
            between = between && (k >> d & 1 ? behind[d] > 0 : behind[d] < kWhole);
        out |= static_cast<u32>(between) << k;
    }
    return out;
}

i32 border_element(Texel t, float border) {
    if (std::isnan(border)) return 0;
    const float least = t == Texel::u8_ || t == Texel::u16_ ? 0.0f : -1.0f;
    return static_cast<i32>(std::nearbyint(std::clamp(border, least, 1.0f) * static_cast<float>(one_of(t))));
}

u32 weighted_sum(const Image& m, const Corners<u32>& elements, const Corners<i32>& weights, u32 taken) {
    if (m.scaled) return std::bit_cast<u32>(sum_of_fractions(m.texel, elements, weights));
    const bool half = m.texel == Texel::f16;
    Corners<float> values{};
    float infinite = 0;
    bool finite = true, negative = true;
    for (u32 k = 0; k < kMostCorners; ++k) {
        if (!(taken >> k & 1)) continue;
        float value = std::bit_cast<float>(elements[k]);
        if (std::fpclassify(value) == FP_SUBNORMAL) value = std::copysign(0.0f, value);
        negative = negative && std::signbit(value);
        if (std::isfinite(value)) {
            values[k] = value;
            continue;
        }
        finite = false;
        infinite += value;
    }
    if (!finite) return !std::isnan(infinite) ? std::bit_cast<u32>(infinite) : half ? 0x7FFFE000u : 0x7FFFFFFFu;
    const float sum = sum_of_floats(values, weights, half ? Precision{11, -14} : Precision{24, -126});
    if (std::fpclassify(sum) == FP_SUBNORMAL) return std::bit_cast<u32>(std::copysign(0.0f, sum));
    return sum == 0 && negative ? 0x80000000u : std::bit_cast<u32>(sum);
}

}  // namespace ptxm
