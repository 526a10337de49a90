// A multicast copy overwrites what the peer may still read: its block alone is done.
// launch: grid 2, cluster 2
#include "../catalogue.cuh"

BODY {
    __shared__ u64 bar;
    __shared__ alignas(16) int x[64];
    const u32 rank = cluster_rank();
    const int t = threadIdx.x;
    if (t == 0) {
        mbar_init(&bar, 1);
        mbar_fence_init();
    }
    cluster_sync();
    int sum = 0;
    for (int turn = 0; turn < 3; ++turn) {
        if (t == 0) mbar_expect(&bar, sizeof x);
        if (rank == 0 && t == 0) bulk_multicast(x, in + 64 * turn, sizeof x, &bar, 3);
        mbar_wait(&bar, turn & 1);
        sum += x[63 - t];
        if (kMistake)
            __syncthreads();
        else
            cluster_sync();
    }
    out[64 * rank + t] = sum;
    cluster_sync();
}

TWINS
