// A block exits while its peer may still read its shared memory.
// launch: grid 2, cluster 2
#include "../catalogue.cuh"

BODY {
    __shared__ int x[64];
    const u32 rank = cluster_rank();
    const int t = threadIdx.x;
    x[t] = in[t];
    cluster_sync();
    out[64 * rank + t] = cluster_load(of_rank(x + 63 - t, rank ^ 1));
    if (!kMistake) cluster_sync();
}

TWINS
