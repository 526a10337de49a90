// One block of a pair gives tensor memory back when its peer may not have allocated it yet.
// launch: grid 2, cluster 2, block 32
#include "../catalogue.cuh"

BODY {
    __shared__ u32 slot;
    cluster_sync();
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(shared(&slot)) : "memory");
    if (!kMistake) cluster_sync();
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, 32;" ::"r"(slot) : "memory");
    out[32 * cluster_rank() + threadIdx.x] = in[threadIdx.x];
}

TWINS
