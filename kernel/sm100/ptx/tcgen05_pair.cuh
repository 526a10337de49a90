// tcgen05 of a pair of CTAs, cta_group::2: what differs from tcgen05.cuh. A kernel has one cta_group for all of it.
#pragma once

#include <stdint.h>

namespace fmha::ptx {

// ---- Allocation: by one whole warp of each CTA of the pair, which wait for each other. ----

__device__ __forceinline__ void tmem_pair_alloc(uint32_t address_word, uint32_t columns) {
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(address_word), "r"(columns)
                 : "memory");
}

__device__ __forceinline__ void tmem_pair_relinquish_alloc_permit() {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void tmem_pair_dealloc(uint32_t address, uint32_t columns) {
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}

// One arrival on the barrier at this place in both CTAs, the first two of the cluster, once every earlier tcgen05.mma
// of this thread has completed.
__device__ __forceinline__ void mma_pair_commit(uint32_t barrier) {
    asm volatile(
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
            barrier),
        "h"(uint16_t(3))
        : "memory");
}

}  // namespace fmha::ptx
