// min and max of PTX (9.7.3.11, 9.7.4.7): NaN handling, signed zeros, three inputs, .xorsign.abs.
#pragma once

#include <bit>
#include <cmath>
#include <type_traits>

#include "numbers/single.hpp"

namespace ptxm {

inline float saturate(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float maybe_flush(float x, bool ftz) { return ftz ? flush(x) : x; }

inline float canonical_nan(float) { return std::bit_cast<float>(0x7FFFFFFFu); }
inline double canonical_nan(double) { return std::bit_cast<double>(0x7FFFFFFFFFFFFFFFull); }

// min and max return the other operand for one NaN, the canonical NaN for two; .NaN propagates one. Written as
// selections of whole numbers, which vectorise: as such, with the magnitude of negative ones inverted, numbers are in
// their order and -0 lies below +0.
template <bool kMax, class T>
[[gnu::always_inline]] inline T extreme(T a, T b, bool propagate) {
    using U = std::conditional_t<sizeof(T) == 4, u32, u64>;
    using S = std::make_signed_t<U>;
    constexpr u32 kSign = 8 * sizeof(T) - 1;
    constexpr U kMagnitude = ~(U{1} << kSign);
    constexpr U kInfinity = static_cast<U>(sizeof(T) == 4 ? 0x7F800000 : 0x7FF0000000000000);
    const U x = std::bit_cast<U>(a), y = std::bit_cast<U>(b);
    const auto rank = [](U bits) {
        return static_cast<S>(bits ^ (static_cast<U>(static_cast<S>(bits) >> kSign) & kMagnitude));
    };
    const bool a_nan = (x & kMagnitude) > kInfinity, b_nan = (y & kMagnitude) > kInfinity;
    U r = (kMax ? rank(x) > rank(y) : rank(x) < rank(y)) ? x : y;
    r = b_nan ? x : r;
    r = a_nan ? y : r;
    const bool nan = propagate ? a_nan | b_nan : a_nan & b_nan;
    return std::bit_cast<T>(nan ? std::bit_cast<U>(canonical_nan(a)) : r);
}

// .xorsign.abs: of the magnitudes, under the product of the signs.
template <bool kMax>
float extreme_xorsign(float a, float b, bool propagate) {
    const float r = extreme<kMax>(std::fabs(a), std::fabs(b), propagate);
    if (r != r) return r;
    return std::copysign(r, std::signbit(a) != std::signbit(b) ? -1.0f : 1.0f);
}

// All forms for f32 values, under the modifiers of the instruction.
template <bool kMax>
float extreme_of(float a, float b, u32 mods) {
    return mods & kXorsignAbs ? extreme_xorsign<kMax>(a, b, mods & kNan) : extreme<kMax>(a, b, (mods & kNan) != 0);
}

template <bool kMax>
float extreme_of(float a, float b, float c, u32 mods) {
    const bool propagate = mods & kNan;
    if (mods & kAbs)
        return extreme<kMax>(extreme<kMax>(std::fabs(a), std::fabs(b), propagate), std::fabs(c), propagate);
    return extreme<kMax>(extreme<kMax>(a, b, propagate), c, propagate);
}

}  // namespace ptxm
