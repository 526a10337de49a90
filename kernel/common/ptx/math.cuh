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

// Of eight values, of the keys from Key on, those of keys before `first` and from `end` on become `otherwise`. As one
// statement: all comparisons come before the first selection, which would have to wait for its own.
template <int Key>
__device__ __forceinline__ void keep_between(float* values, int first, int end, float otherwise) {
    asm("{\n\t"
        ".reg .pred p<8>;\n\t"
        "setp.le.s32 p0, %8, %11;\n\t"
        "setp.le.s32 p1, %8, %12;\n\t"
        "setp.le.s32 p2, %8, %13;\n\t"
        "setp.le.s32 p3, %8, %14;\n\t"
        "setp.le.s32 p4, %8, %15;\n\t"
        "setp.le.s32 p5, %8, %16;\n\t"
        "setp.le.s32 p6, %8, %17;\n\t"
        "setp.le.s32 p7, %8, %18;\n\t"
        "setp.gt.and.s32 p0, %9, %11, p0;\n\t"
        "setp.gt.and.s32 p1, %9, %12, p1;\n\t"
        "setp.gt.and.s32 p2, %9, %13, p2;\n\t"
        "setp.gt.and.s32 p3, %9, %14, p3;\n\t"
        "setp.gt.and.s32 p4, %9, %15, p4;\n\t"
        "setp.gt.and.s32 p5, %9, %16, p5;\n\t"
        "setp.gt.and.s32 p6, %9, %17, p6;\n\t"
        "setp.gt.and.s32 p7, %9, %18, p7;\n\t"
        "selp.f32 %0, %0, %10, p0;\n\t"
        "selp.f32 %1, %1, %10, p1;\n\t"
        "selp.f32 %2, %2, %10, p2;\n\t"
        "selp.f32 %3, %3, %10, p3;\n\t"
        "selp.f32 %4, %4, %10, p4;\n\t"
        "selp.f32 %5, %5, %10, p5;\n\t"
        "selp.f32 %6, %6, %10, p6;\n\t"
        "selp.f32 %7, %7, %10, p7;\n\t"
        "}"
        : "+f"(values[0]), "+f"(values[1]), "+f"(values[2]), "+f"(values[3]), "+f"(values[4]), "+f"(values[5]),
          "+f"(values[6]), "+f"(values[7])
        : "r"(first), "r"(end), "f"(otherwise), "n"(Key), "n"(Key + 1), "n"(Key + 2), "n"(Key + 3), "n"(Key + 4),
          "n"(Key + 5), "n"(Key + 6), "n"(Key + 7));
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
