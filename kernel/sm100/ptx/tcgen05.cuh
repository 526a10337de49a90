// tcgen05, cta_group::1: tensor memory and the tensor core.
//
// A TMEM address is lane << 16 | column. A warp reaches the 32 lanes of its quarter, warp index % 4.
#pragma once

#include <stdint.h>

namespace fmha::ptx {

// ---- Allocation: by one whole warp. ----

// Writes the base address to shared memory; blocks while another CTA of the SM holds the columns.
__device__ __forceinline__ void tmem_alloc(uint32_t address_word, uint32_t columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(address_word), "r"(columns)
                 : "memory");
}

// Lets the next CTA of this SM allocate.
__device__ __forceinline__ void tmem_relinquish_alloc_permit() {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void tmem_dealloc(uint32_t address, uint32_t columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}

// ---- Ordering. ----

// Before an arrival or barrier on which other threads' tcgen05 operations rely.
__device__ __forceinline__ void tcgen05_fence_before_thread_sync() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

// After a wait or barrier, before tcgen05 operations that rely on other threads.
__device__ __forceinline__ void tcgen05_fence_after_thread_sync() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// ---- Matrix multiply: issued by one thread, asynchronous. ----

// D[tmem] = A[smem] B[smem] (+ D if accumulate).
__device__ __forceinline__ void mma_f16_smem(uint32_t d, uint64_t a_descriptor, uint64_t b_descriptor,
                                             uint32_t instruction, bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred accumulate;\n\t"
        "setp.ne.b32 accumulate, %4, 0;\n\t"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, accumulate;\n\t"
        "}" ::"r"(d),
        "l"(a_descriptor), "l"(b_descriptor), "r"(instruction), "r"(uint32_t(accumulate))
        : "memory");
}

// D[tmem] = A[tmem] B[smem] (+ D if accumulate).
__device__ __forceinline__ void mma_f16_tmem(uint32_t d, uint32_t a, uint64_t b_descriptor, uint32_t instruction,
                                             bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred accumulate;\n\t"
        "setp.ne.b32 accumulate, %4, 0;\n\t"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, accumulate;\n\t"
        "}" ::"r"(d),
        "r"(a), "l"(b_descriptor), "r"(instruction), "r"(uint32_t(accumulate))
        : "memory");
}

// Weight-stationary, M = 64 (or 32): D's columns are dealt to the lanes beyond M, see FmhaTraits.
__device__ __forceinline__ void mma_ws_f16_smem(uint32_t d, uint64_t a_descriptor, uint64_t b_descriptor,
                                                uint32_t instruction, bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred accumulate;\n\t"
        "setp.ne.b32 accumulate, %4, 0;\n\t"
        "tcgen05.mma.ws.cta_group::1.kind::f16 [%0], %1, %2, %3, accumulate;\n\t"
        "}" ::"r"(d),
        "l"(a_descriptor), "l"(b_descriptor), "r"(instruction), "r"(uint32_t(accumulate))
        : "memory");
}

// Likewise, with A in TMEM: whole rows of it, in the lower and again in the upper half of the lanes.
__device__ __forceinline__ void mma_ws_f16_tmem(uint32_t d, uint32_t a, uint64_t b_descriptor, uint32_t instruction,
                                                bool accumulate) {
    asm volatile(
        "{\n\t"
        ".reg .pred accumulate;\n\t"
        "setp.ne.b32 accumulate, %4, 0;\n\t"
        "tcgen05.mma.ws.cta_group::1.kind::f16 [%0], [%1], %2, %3, accumulate;\n\t"
        "}" ::"r"(d),
        "r"(a), "l"(b_descriptor), "r"(instruction), "r"(uint32_t(accumulate))
        : "memory");
}

// One arrival on `barrier` once every earlier tcgen05.mma of this thread has completed.
__device__ __forceinline__ void mma_commit(uint32_t barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                 : "memory");
}

// ---- Loads and stores, 32x32b: register i of lane l is column i of the warp's lane l. By whole warps. ----

#define FMHA_OPERANDS_32                                                      \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define FMHA_REGISTERS_8(constraint, r, i)                                                      \
    constraint((r)[i]), constraint((r)[i + 1]), constraint((r)[i + 2]), constraint((r)[i + 3]), \
        constraint((r)[i + 4]), constraint((r)[i + 5]), constraint((r)[i + 6]), constraint((r)[i + 7])
#define FMHA_REGISTERS_32(constraint, r)                                                                         \
    FMHA_REGISTERS_8(constraint, r, 0), FMHA_REGISTERS_8(constraint, r, 8), FMHA_REGISTERS_8(constraint, r, 16), \
        FMHA_REGISTERS_8(constraint, r, 24)

#define FMHA_OPERANDS_16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define FMHA_REGISTERS_16(constraint, r) FMHA_REGISTERS_8(constraint, r, 0), FMHA_REGISTERS_8(constraint, r, 8)

// Loads `Columns` columns of this lane, 16 or a multiple of 32; the registers are valid on return.
template <int Columns>
__device__ __forceinline__ void tmem_load(float (&row)[Columns], uint32_t address) {
    static_assert(Columns == 16 || Columns % 32 == 0);
    if constexpr (Columns == 16) {
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 " FMHA_OPERANDS_16 ", [%16];"
                     : FMHA_REGISTERS_16("=f", row)
                     : "r"(address)
                     : "memory");
    }
#pragma unroll
    for (int i = 0; i + 32 <= Columns; i += 32) {
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 " FMHA_OPERANDS_32 ", [%32];"
                     : FMHA_REGISTERS_32("=f", row + i)
                     : "r"(address + i)
                     : "memory");
    }
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    // Names the registers after the wait: otherwise the compiler is free to move arithmetic on the results above it.
    if constexpr (Columns == 16) {
        asm volatile("" : FMHA_REGISTERS_16("+f", row));
    }
#pragma unroll
    for (int i = 0; i + 32 <= Columns; i += 32) {
        asm volatile("" : FMHA_REGISTERS_32("+f", row + i));
    }
}

// Stores as many columns of this lane; asynchronous until tmem_wait_store.
template <int Columns>
__device__ __forceinline__ void tmem_store(uint32_t address, const uint32_t (&row)[Columns]) {
    static_assert(Columns == 16 || Columns % 32 == 0);
    if constexpr (Columns == 16) {
        asm volatile("tcgen05.st.sync.aligned.32x32b.x16.b32 [%16], " FMHA_OPERANDS_16
                     ";" ::FMHA_REGISTERS_16("r", row),
                     "r"(address)
                     : "memory");
    }
#pragma unroll
    for (int i = 0; i + 32 <= Columns; i += 32) {
        asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], " FMHA_OPERANDS_32
                     ";" ::FMHA_REGISTERS_32("r", row + i),
                     "r"(address + i)
                     : "memory");
    }
}

#undef FMHA_REGISTERS_16
#undef FMHA_OPERANDS_16
#undef FMHA_REGISTERS_32
#undef FMHA_REGISTERS_8
#undef FMHA_OPERANDS_32

// Every earlier tcgen05.st of this warp is done.
__device__ __forceinline__ void tmem_wait_store() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

}  // namespace fmha::ptx
