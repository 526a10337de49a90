// A block adds to its own copy of what the first block of the cluster collects.
// launch: grid 2, cluster 2
#include "../catalogue.cuh"

BODY {
    __shared__ int sum;
    const u32 rank = cluster_rank();
    const int t = threadIdx.x;
    if (rank == 0 && t == 0) sum = 0;
    cluster_sync();
    const u32 at = of_rank(&sum, kMistake ? rank : 0);
    asm volatile("red.relaxed.cluster.shared::cluster.add.s32 [%0], %1;" ::"r"(at), "r"(in[t]) : "memory");
    cluster_sync();
    if (rank == 0) out[t] = sum;
}

TWINS
