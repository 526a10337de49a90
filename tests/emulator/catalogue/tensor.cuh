// What entries with the tensor core or tensor maps share. A block of 128 threads; `Tensor` is the usual setup: 64 columns
// of tensor memory, a barrier of one arrival, and an operand of zeros, 128 x 16 of bf16, K-major without a swizzle.
#pragma once

#include "catalogue.cuh"

__device__ __forceinline__ void tc_alloc(u32* slot, u32 columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared(slot)), "r"(columns)
                 : "memory");
}
__device__ __forceinline__ void tc_dealloc(u32 tm, u32 columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tm), "r"(columns) : "memory");
}
__device__ __forceinline__ void tc_relinquish() {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void tc_mma(u32 d, u64 a, u64 b, u32 idesc, bool accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }" ::"r"(d),
        "l"(a), "l"(b), "r"(idesc), "r"(u32(accumulate))
        : "memory");
}
__device__ __forceinline__ void tc_commit(u64* bar) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared(bar))
                 : "memory");
}
__device__ __forceinline__ void tc_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void tc_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
__device__ __forceinline__ int tc_load(u32 at) {
    int v;
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}
__device__ __forceinline__ void tc_store(u32 at, int v) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(at), "r"(v) : "memory");
}
__device__ __forceinline__ void tc_wait_load() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void tc_wait_store() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

constexpr u32 kShape = 0x8040490;  // M = 128, N = 16, bf16, f32
constexpr u64 kLayout = 0x400800800000;

struct Tensor {
    u32 tm, quarter;  // the columns, and this warp's lanes of them
    u64 operand;
    u64* bar;
    int* tile;
    u32* slot;
    bool first;
    __device__ __forceinline__ void multiply(u32 column = 0, bool accumulate = false) const {
        tc_mma(tm + column, operand, operand, kShape, accumulate);
    }
    // The usual end: everybody is done with tensor memory.
    __device__ __forceinline__ void end() const {
        tc_before();
        __syncthreads();
        tc_after();
        if (threadIdx.x < 32) tc_dealloc(tm, 64);
    }
};

__device__ __forceinline__ Tensor begin() {
    __shared__ u32 slot;
    __shared__ u64 bar;
    __shared__ alignas(1024) int tile[1024];
    const int t = threadIdx.x;
    if (t < 32) tc_alloc(&slot, 64);
    if (t == 0) {
        mbar_init(&bar, 1);
        mbar_fence_init();
    }
    for (int k = t; k < 1024; k += 128) tile[k] = 0;
    proxy_fence();
    tc_before();
    __syncthreads();
    tc_after();
    return {slot, slot + (t / 32 << 21), shared(tile) >> 4 | kLayout, &bar, tile, &slot, t == 0};
}

// A tensor map of `in`, of 64 rows of 16 words, in boxes of 8 rows; and one of `out`, alike.
struct alignas(64) Map {
    char bytes[128];
};
#define MAP_BODY             \
    template <bool kMistake> \
    __device__ __forceinline__ void body(int* out, const int* in, const Map& from, const Map& to)
#define MAP_TWINS                                                                                                      \
    extern "C" __global__ void right(int* out, const int* in, const __grid_constant__ Map from,                        \
                                     const __grid_constant__ Map to) {                                                 \
        body<false>(out, in, from, to);                                                                                \
    }                                                                                                                  \
    extern "C" __global__ void mistake(int* out, const int* in, const __grid_constant__ Map from,                      \
                                       const __grid_constant__ Map to) {                                               \
        body<true>(out, in, from, to);                                                                                 \
    }

__device__ __forceinline__ void map_load(void* to, const Map& map, int column, int row, u64* bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(shared(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared(bar))
        : "memory");
}
__device__ __forceinline__ void map_store(const Map& map, int column, int row, const void* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
                 "r"(column), "r"(row), "r"(shared(from))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
