// Named barriers, copies through shared memory.
#pragma once

#include <stdint.h>

#include "common/ptx/grid.cuh"
#include "common/ptx/registers.cuh"

namespace fmha::ptx {

__device__ __forceinline__ void named_barrier_sync(int barrier, int threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_barrier_arrive(int barrier, int threads) {
    asm volatile("barrier.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// What every lane holds already, or one alone and the others 0, in a register of the warp. Descriptors must lie in
// such: from others ptxas moves each into one at its wgmma, which then takes its turn at 50 cycles.
__device__ __forceinline__ uint32_t uniform(uint32_t x) {
    uint32_t same;
    asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(same) : "r"(x));
    return same;
}

// `Bytes`, 8 or 16, from `source` to `destination` in shared memory; unless `live` zeros.
template <int Bytes>
__device__ __forceinline__ void copy_async(uint32_t destination, const void* source, bool live) {
    const uint32_t bytes = live ? Bytes : 0;
    if constexpr (Bytes == 16) {  // .cg takes no other
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination),
                     "l"(__cvta_generic_to_global(source)), "r"(bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(destination),
                     "l"(__cvta_generic_to_global(source)), "n"(Bytes), "r"(bytes)
                     : "memory");
    }
}

__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// All that this thread has committed is there.
__device__ __forceinline__ void copy_async_wait() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

// Predicated, not branched around: between branches nothing overlaps, and each store would wait for the shuffle before.
__device__ __forceinline__ void store_global_if(bool condition, uint4* destination, uint4 v) {
    asm volatile(
        "{\n\t"
        ".reg .pred stored;\n\t"
        "setp.ne.b32 stored, %0, 0;\n\t"
        "@stored st.global.v4.b32 [%1], {%2, %3, %4, %5};\n\t"
        "}" ::"r"(int(condition)),
        "l"(__cvta_generic_to_global(destination)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
        : "memory");
}

// Over the lanes of a converged warp.
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
    }
    return x;
}

__device__ __forceinline__ uint2 load_shared_words(uint32_t address) {
    uint2 v;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ float4 load_shared_vector(uint32_t address) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

__device__ __forceinline__ void store_shared(uint32_t address, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}

__device__ __forceinline__ float load_shared_float(uint32_t address) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}

__device__ __forceinline__ void store_shared(uint32_t address, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ void load_shared(uint32_t address, uint32_t (&v)[4]) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ float2 load_shared_pair(uint32_t address) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ void store_shared(uint32_t address, float x, float y, float z, float w) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}

}  // namespace fmha::ptx
