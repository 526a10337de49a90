// A block reads its peer's shared memory behind a barrier of its own alone.
// launch: grid 2, cluster 2
#include "../catalogue.cuh"

BODY {
    __shared__ int x[64];
    const u32 rank = cluster_rank();
    const int t = threadIdx.x;
    x[t] = in[t];
    if (kMistake)
        __syncthreads();
    else
        cluster_sync();
    out[64 * rank + t] = cluster_load(of_rank(x + 63 - t, rank ^ 1));
    cluster_sync();
}

TWINS
