// Partial results in f16 (kFmhaPartialF16) lie over a power of two, which leaves 11 bits of the largest element and
// takes half the bytes of fp32.
#pragma once

#include <stdint.h>

namespace fmha {

// The power of two in `magnitude`, kept where it and its reciprocal are normal numbers, and that reciprocal. Exact, so
// that nothing is rounded twice.
struct PowerOfTwo {
    float value, reciprocal;

    __device__ __forceinline__ explicit PowerOfTwo(float magnitude) {
        constexpr uint32_t kLeast = 0x01000000, kMost = 0x7e000000;  // 2^-125, 2^125
        const uint32_t bits = min(max(__float_as_uint(magnitude) & 0x7f800000u, kLeast), kMost);
        value = __uint_as_float(bits);
        reciprocal = __uint_as_float(0x7f000000u - bits);
    }
};

}  // namespace fmha
