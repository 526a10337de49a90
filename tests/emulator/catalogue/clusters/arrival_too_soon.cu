// A block arrives at its peer's barrier, which that may not have initialised yet.
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
    if (kMistake)
        __syncthreads();
    else
        cluster_sync();
    if (t == 0) arrive_at(of_rank(&bar, rank ^ 1));
    mbar_wait(&bar, 0);
    out[64 * rank + t] = in[t];
    cluster_sync();
}

TWINS
