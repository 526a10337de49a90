// Thread block clusters: ranks, barriers, and the shared memory of other CTAs.
#pragma once

#include <stdint.h>

namespace fmha::ptx {

__device__ __forceinline__ uint32_t cluster_width() {
    uint32_t width;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(width));
    return width;
}

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Where this CTA stands in the grid,
__device__ __forceinline__ int32_t block_x() {
    int32_t x;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
    return x;
}

// and in its cluster.
__device__ __forceinline__ uint32_t cluster_x() {
    uint32_t x;
    asm volatile("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
    return x;
}

__device__ __forceinline__ uint32_t cluster_y() {
    uint32_t y;
    asm volatile("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(y));
    return y;
}

// The address in CTA `rank` of what lies at `address` in this one.
__device__ __forceinline__ uint32_t map_to_cta(uint32_t address, uint32_t rank) {
    uint32_t mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}

__device__ __forceinline__ uint32_t cluster_height() {
    uint32_t height;
    asm("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(height));
    return height;
}

// All threads of all CTAs of the cluster meet; what they wrote before is visible to all after.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// They meet in two steps, and no more: spares the release, a fence of the whole GPU. Initialised barriers have a fence
// of their own.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// The next three take an address that map_to_cta returned. The arrival releases to this CTA only: a release to the
// cluster is a fence of the whole GPU, and what a slot's release orders are finished reads.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void store_cluster(uint32_t address, float x, float y) {
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ float4 load_cluster(uint32_t address) {
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

// One arrival at an address that map_to_cta returned, releasing to the whole cluster what this thread did before it.
__device__ __forceinline__ void mbarrier_arrive_release_cluster(uint32_t barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Makes initialised barriers visible to the cluster, whose barrier other CTAs still need.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace fmha::ptx
