// What the kernels that copy tensors share: they fill shared memory with a pattern, and write it out whole, so that bytes
// that a copy must not touch are seen too.
#pragma once

#include <cstdint>

struct alignas(64) Map {
    unsigned char opaque[128];
};

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ unsigned char pattern(uint32_t i) { return static_cast<unsigned char>((i * 2654435761u) >> 24); }

extern __shared__ __align__(1024) unsigned char region[];

__device__ void begin(uint64_t* barrier, uint32_t bytes) {
    for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) region[i] = pattern(i);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

// Waits for the copy, but not for ever: a wrong byte count is a result, not a hang.
__device__ void finish(uint64_t* barrier, uint32_t bytes, unsigned char* out) {
    uint32_t done = 0;
    for (uint32_t n = 0; n < 100000 && !done; ++n)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_address(barrier))
                     : "memory");
    for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = region[i];
    if (threadIdx.x == 0) out[bytes] = static_cast<unsigned char>(done);
}

__device__ void expect(uint64_t* barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

#define COORDINATES_1 "{%2}"
#define COORDINATES_2 "{%2, %3}"
#define COORDINATES_3 "{%2, %3, %4}"
#define COORDINATES_4 "{%2, %3, %4, %5}"
#define COORDINATES_5 "{%2, %3, %4, %5, %6}"

struct Coordinates {
    int c[5];
};

// at: offset of the box in shared memory.
#define STORE_KERNEL(NAME, INSTRUCTION, N)                                                                             \
    extern "C" __global__ void NAME(const __grid_constant__ Map map, Coordinates x, unsigned at, unsigned bytes,        \
                                    const unsigned char* in) {                                                         \
        for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) region[i] = in[i];                                  \
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                                                   \
        __syncthreads();                                                                                               \
        if (threadIdx.x == 0) {                                                                                        \
            asm volatile(INSTRUCTION " [%1, " COORDINATES_##N "], [%0];" ::"r"(shared_address(region + at)),           \
                         "l"(&map), "r"(x.c[0]), "r"(x.c[1]), "r"(x.c[2]), "r"(x.c[3]), "r"(x.c[4]) : "memory");       \
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");                                                  \
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");                                                  \
        }                                                                                                              \
    }
