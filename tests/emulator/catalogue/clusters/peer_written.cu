// A block writes into its peer's shared memory while that still reads it.
// launch: grid 2, cluster 2
#include "../catalogue.cuh"

BODY {
    __shared__ int x[64];
    const u32 rank = cluster_rank();
    const int t = threadIdx.x;
    x[t] = in[t];
    cluster_sync();
    int v = x[63 - t];
    if (!kMistake) cluster_sync();
    cluster_store(of_rank(x + t, rank ^ 1), v);
    cluster_sync();
    out[64 * rank + t] = x[t];
}

TWINS
