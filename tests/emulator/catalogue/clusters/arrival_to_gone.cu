// A block exits while its peer may still arrive at its barrier.
// launch: grid 2, cluster 2
#include "../catalogue.cuh"

BODY {
    __shared__ u64 bar;
    const u32 rank = cluster_rank();
    const int t = threadIdx.x;
    if (t == 0) {
        mbar_init(&bar, 1);
        mbar_fence_init();
    }
    cluster_sync();
    if (rank == 0 && t == 0) {
        arrive_at(of_rank(&bar, 1));
    }
    out[64 * rank + t] = in[t];
    if (!kMistake && rank == 1) mbar_wait(&bar, 0);
}

TWINS
