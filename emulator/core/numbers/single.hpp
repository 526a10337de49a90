// Single precision as PTX has it: denormals, NaN, and bf16, which is its upper half.
#pragma once

#include <bit>
#include <cmath>

#include "isa/program.hpp"

namespace ptxm {

// Denormal inputs and results become zero of the same sign under .ftz.
[[gnu::always_inline]] inline float flush(float x) {
    const u32 bits = std::bit_cast<u32>(x);
    return (bits & 0x7F800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : x;
}

// What single-precision arithmetic makes of any NaN on an H200, abs and neg included.
[[gnu::always_inline]] inline float one_nan(float x) {
    const u32 bits = std::bit_cast<u32>(x);
    return std::bit_cast<float>((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFFFFFFu : bits);
}

inline float bf16_to_float(u16 bits) { return std::bit_cast<float>(static_cast<u32>(bits) << 16); }

// Round to nearest even; NaN becomes the canonical 0x7FFF as PTX specifies for cvt to bf16.
[[gnu::always_inline]] inline u16 float_to_bf16(float x) {
    const u32 bits = std::bit_cast<u32>(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
    return static_cast<u16>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

// Silicon flushes a product that is below 2^-126 before it is rounded, which may round it up to that.
inline float product_ftz(float a, float b) {
    const float product = a * b;
    const bool tiny = std::fabs(static_cast<double>(a) * static_cast<double>(b)) < 0x1p-126;
    return tiny ? std::copysign(0.0f, product) : product;
}

}  // namespace ptxm
