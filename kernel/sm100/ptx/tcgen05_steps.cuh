// tcgen05.mma of four K steps, 64 elements of bf16. Of each step the operands' places are given: the
// lower words of shared-memory descriptors, whose upper words are one, or columns. Issued by one thread, asynchronous.
#pragma once

#include <stdint.h>

namespace fmha::ptx {

// Of four steps from `first` on, `step` apart.
__device__ __forceinline__ void places(uint32_t (&of)[4], uint32_t first, uint32_t step) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        of[k] = first + k * step;
    }
}

// D[tmem] = A[smem] B[smem] (+ D if accumulate). Of a pair, the operands lie at the same places in both CTAs.
#define FMHA_MMA_F16_SMEM_4(name, group)                                                                               \
    __device__ __forceinline__ void name(uint32_t d, const uint32_t (&a)[4], uint32_t a_upper, const uint32_t (&b)[4], \
                                         uint32_t b_upper, uint32_t instruction, bool accumulate) {                    \
        asm volatile(                                                                                                  \
            "{\n\t"                                                                                                    \
            ".reg .pred first, rest;\n\t"                                                                              \
            ".reg .b64 a, b;\n\t"                                                                                      \
            "setp.ne.b32 first, %12, 0;\n\t"                                                                           \
            "setp.eq.b32 rest, 0, 0;\n\t"                                                                              \
            "mov.b64 a, {%1, %9};\n\t"                                                                                 \
            "mov.b64 b, {%5, %10};\n\t"                                                                                \
            "tcgen05.mma." group                                                                                       \
            ".kind::f16 [%0], a, b, %11, first;\n\t"                                                                   \
            "mov.b64 a, {%2, %9};\n\t"                                                                                 \
            "mov.b64 b, {%6, %10};\n\t"                                                                                \
            "tcgen05.mma." group                                                                                       \
            ".kind::f16 [%0], a, b, %11, rest;\n\t"                                                                    \
            "mov.b64 a, {%3, %9};\n\t"                                                                                 \
            "mov.b64 b, {%7, %10};\n\t"                                                                                \
            "tcgen05.mma." group                                                                                       \
            ".kind::f16 [%0], a, b, %11, rest;\n\t"                                                                    \
            "mov.b64 a, {%4, %9};\n\t"                                                                                 \
            "mov.b64 b, {%8, %10};\n\t"                                                                                \
            "tcgen05.mma." group                                                                                       \
            ".kind::f16 [%0], a, b, %11, rest;\n\t"                                                                    \
            "}" ::"r"(d),                                                                                              \
            "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(a_upper),      \
            "r"(b_upper), "r"(instruction), "r"(uint32_t(accumulate))                                                  \
            : "memory");                                                                                               \
    }
FMHA_MMA_F16_SMEM_4(mma_f16_smem_4, "cta_group::1")
FMHA_MMA_F16_SMEM_4(mma_pair_f16_smem_4, "cta_group::2")
#undef FMHA_MMA_F16_SMEM_4

// D[tmem] = A[tmem] B[smem] (+ D if accumulate).
__device__ __forceinline__ void mma_f16_tmem_4(uint32_t d, const uint32_t (&a)[4], const uint32_t (&b)[4],
                                               uint32_t b_upper, uint32_t instruction, bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred first, rest;\n\t"
        ".reg .b64 b;\n\t"
        "setp.ne.b32 first, %11, 0;\n\t"
        "setp.eq.b32 rest, 0, 0;\n\t"
        "mov.b64 b, {%5, %9};\n\t"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], b, %10, first;\n\t"
        "mov.b64 b, {%6, %9};\n\t"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], [%2], b, %10, rest;\n\t"
        "mov.b64 b, {%7, %9};\n\t"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], [%3], b, %10, rest;\n\t"
        "mov.b64 b, {%8, %9};\n\t"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], [%4], b, %10, rest;\n\t"
        "}" ::"r"(d),
        "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(b_upper),
        "r"(instruction), "r"(uint32_t(accumulate))
        : "memory");
}

}  // namespace fmha::ptx
