// Arithmetic on two floats at once, and the maximum of three: what sm_100 has beside the instructions of one.
#pragma once

#include <stdint.h>

namespace fmha::ptx {

__device__ __forceinline__ uint64_t pack_f32x2(float low, float high) {
    uint64_t packed;
    asm("mov.b64 %0, {%1, %2};" : "=l"(packed) : "f"(low), "f"(high));
    return packed;
}

__device__ __forceinline__ uint64_t pack_f32x2(float both) { return pack_f32x2(both, both); }

__device__ __forceinline__ float2 unpack_f32x2(uint64_t packed) {
    float2 v;
    asm("mov.b64 {%0, %1}, %2;" : "=f"(v.x), "=f"(v.y) : "l"(packed));
    return v;
}

__device__ __forceinline__ uint64_t fma_f32x2(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t d;
    asm("fma.rn.f32x2 %0, %1, %2, %3;" : "=l"(d) : "l"(a), "l"(b), "l"(c));
    return d;
}

__device__ __forceinline__ uint64_t add_f32x2(uint64_t a, uint64_t b) {
    uint64_t d;
    asm("add.rn.f32x2 %0, %1, %2;" : "=l"(d) : "l"(a), "l"(b));
    return d;
}

__device__ __forceinline__ uint64_t sub_f32x2(uint64_t a, uint64_t b) {
    uint64_t d;
    asm("sub.rn.f32x2 %0, %1, %2;" : "=l"(d) : "l"(a), "l"(b));
    return d;
}

__device__ __forceinline__ uint64_t mul_f32x2(uint64_t a, uint64_t b) {
    uint64_t d;
    asm("mul.rn.f32x2 %0, %1, %2;" : "=l"(d) : "l"(a), "l"(b));
    return d;
}

// A NaN is left out as in fmaxf.
__device__ __forceinline__ float max3(float a, float b, float c) {
    float d;
    asm("max.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
    return d;
}

// Of the magnitudes, likewise.
__device__ __forceinline__ float max3_abs(float a, float b, float c) {
    float d;
    asm("max.abs.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
    return d;
}

// The larger, or NaN where one of the two is.
__device__ __forceinline__ float max_nan(float a, float b) {
    float d;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
    return d;
}

// x 2^n of 1 <= x < 2, where the low bits of `rounded` are n: the exponent gets n added. -127 makes it 0 of x = 1.
__device__ __forceinline__ float scale_by_power(float x, float rounded) {
    uint32_t bits;
    asm("mad.lo.u32 %0, %1, 0x800000, %2;" : "=r"(bits) : "r"(__float_as_uint(rounded)), "r"(__float_as_uint(x)));
    return __uint_as_float(bits);
}

}  // namespace fmha::ptx
