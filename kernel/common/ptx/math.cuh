// Approximate transcendentals and the conversions to packed bf16 and f16.
#pragma once

#include <stdint.h>

namespace fmha::ptx {

// 2^x; exp2(-inf) = 0 and exp2(0) = 1 exactly.
__device__ __forceinline__ float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// log2(x); log2(0) = -inf.
__device__ __forceinline__ float log2(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / x, within one unit in the last place; 0 for inf.
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Two floats rounded to nearest even, `low` in bits 0-15. The instruction takes the upper half first.
__device__ __forceinline__ uint32_t pack_bf16x2(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// Likewise.
__device__ __forceinline__ uint32_t pack_f16x2(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ float2 unpack_f16x2(uint32_t packed) {
    float2 v;
    asm("{\n\t"
        ".reg .b16 low, high;\n\t"
        "mov.b32 {low, high}, %2;\n\t"
        "cvt.f32.f16 %0, low;\n\t"
        "cvt.f32.f16 %1, high;\n\t"
        "}"
        : "=f"(v.x), "=f"(v.y)
        : "r"(packed));
    return v;
}

}  // namespace fmha::ptx
