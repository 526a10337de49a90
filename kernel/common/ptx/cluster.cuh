// Thread block clusters: ranks, barriers, and the shared memory of other CTAs.
#pragma once

#include <stdint.h>

namespace fmha::ptx {

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// The address in CTA `rank` of what lies at `address` in this one.
__device__ __forceinline__ uint32_t map_to_cta(uint32_t address, uint32_t rank) {
    uint32_t mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}

// All threads of all CTAs of the cluster meet; what they wrote before is visible to all after.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
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
