// wgmma: the warpgroup's matrix multiply, bf16 into fp32. 64 rows a warpgroup; issued by all 128 threads, asynchronous.
//
// Accumulator fragment of m64nNk16, N/2 registers: element i of lane l in warp w is row 16w + l/4 + 8 (i/2 % 2), column
// 8 (i/4) + 2 (l%4) + i%2. The A fragment is packed the same way, two columns a register.
#pragma once

#include <stdint.h>

namespace fmha::ptx {

// Before the first wgmma, and after registers it reads or accumulates into were written.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// All but the `Pending` youngest groups of this warp are done.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Names the registers: the compiler moves no read of them above this point, which stands after a wait.
template <int Count>
__device__ __forceinline__ void pin(float (&registers)[Count]) {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
        asm volatile("" : "+f"(registers[i])::"memory");
    }
}

#define FMHA_OPERANDS_24                                                     \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23"
#define FMHA_OPERANDS_32                                                     \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FMHA_OPERANDS_40                                                                                             \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                         \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
    "%38, %39"
#define FMHA_OPERANDS_64                                                               \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FMHA_OPERANDS_128                                                                          \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define FMHA_ACCUMULATORS_8(d, i)                                                                           \
    "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3]), "+f"((d)[i + 4]), "+f"((d)[i + 5]), \
        "+f"((d)[i + 6]), "+f"((d)[i + 7])
#define FMHA_ACCUMULATORS_16(d, i) FMHA_ACCUMULATORS_8(d, i), FMHA_ACCUMULATORS_8(d, i + 8)
#define FMHA_ACCUMULATORS_24(d, i) FMHA_ACCUMULATORS_16(d, i), FMHA_ACCUMULATORS_8(d, (i) + 16)
#define FMHA_ACCUMULATORS_32(d, i) FMHA_ACCUMULATORS_16(d, i), FMHA_ACCUMULATORS_16(d, i + 16)
#define FMHA_ACCUMULATORS_40(d, i) FMHA_ACCUMULATORS_32(d, i), FMHA_ACCUMULATORS_8(d, (i) + 32)
#define FMHA_ACCUMULATORS_64(d, i) FMHA_ACCUMULATORS_32(d, i), FMHA_ACCUMULATORS_32(d, i + 32)
#define FMHA_ACCUMULATORS_128(d, i) FMHA_ACCUMULATORS_64(d, i), FMHA_ACCUMULATORS_64(d, i + 64)

// One instruction of N columns, R = N / 2 accumulators. The operands after them are numbered from R, so they are given
// as text: A's and B's descriptors and the accumulate flag, or A's four registers, B's descriptor and the flag.
#define FMHA_WGMMA_SS(N, R, A, B, FLAG)                                                         \
    asm volatile("{\n\t.reg .pred accumulate;\n\tsetp.ne.b32 accumulate, " FLAG                 \
                 ", 0;\n\t"                                                                     \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" FMHA_OPERANDS_##R \
                 "}, " A ", " B ", accumulate, 1, 1, 0, 0;\n\t}"                                \
                 : FMHA_ACCUMULATORS_##R(d, 0)                                                  \
                 : "l"(a), "l"(b), "r"(uint32_t(accumulate)))
#define FMHA_WGMMA_RS(N, R, A, B)                                                                                \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" FMHA_OPERANDS_##R "}, {" A "}, " B \
                                                                                                ", 1, 1, 1, 1;"  \
                 : FMHA_ACCUMULATORS_##R(d, 0)                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

// D = A B^T (+ D if accumulate), A and B K-major in shared memory.
template <int N>
__device__ __forceinline__ void wgmma_shared(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate) {
    static_assert(N == 48 || N == 64 || N == 80 || N == 128, "add the column count");
    if constexpr (N == 48) {
        FMHA_WGMMA_SS(48, 24, "%24", "%25", "%26");
    } else if constexpr (N == 64) {
        FMHA_WGMMA_SS(64, 32, "%32", "%33", "%34");
    } else if constexpr (N == 80) {
        FMHA_WGMMA_SS(80, 40, "%40", "%41", "%42");
    } else {
        FMHA_WGMMA_SS(128, 64, "%64", "%65", "%66");
    }
}

// D += A B, A in registers, B MN-major in shared memory.
template <int N>
__device__ __forceinline__ void wgmma_registers(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b) {
    static_assert(N == 64 || N == 128 || N == 256, "add the column count");
    if constexpr (N == 64) {
        FMHA_WGMMA_RS(64, 32, "%32, %33, %34, %35", "%36");
    } else if constexpr (N == 128) {
        FMHA_WGMMA_RS(128, 64, "%64, %65, %66, %67", "%68");
    } else {
        FMHA_WGMMA_RS(256, 128, "%128, %129, %130, %131", "%132");
    }
}

#undef FMHA_WGMMA_RS
#undef FMHA_WGMMA_SS
#undef FMHA_ACCUMULATORS_128
#undef FMHA_ACCUMULATORS_64
#undef FMHA_ACCUMULATORS_40
#undef FMHA_ACCUMULATORS_32
#undef FMHA_ACCUMULATORS_24
#undef FMHA_ACCUMULATORS_16
#undef FMHA_ACCUMULATORS_8
#undef FMHA_OPERANDS_128
#undef FMHA_OPERANDS_64
#undef FMHA_OPERANDS_40
#undef FMHA_OPERANDS_32
#undef FMHA_OPERANDS_24

}  // namespace fmha::ptx
