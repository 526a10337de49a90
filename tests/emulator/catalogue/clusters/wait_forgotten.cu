// A block arrives at the cluster barrier and does not wait.
// launch: grid 2, cluster 2
#include "../catalogue.cuh"

BODY {
    __shared__ int x[64];
    const u32 rank = cluster_rank();
    const int t = threadIdx.x;
    x[t] = in[t];
    cluster_arrive();
    if (!kMistake) cluster_wait();
    out[64 * rank + t] = cluster_load(of_rank(x + 63 - t, rank ^ 1));
    if (kMistake) cluster_wait();
    cluster_sync();
}

TWINS
