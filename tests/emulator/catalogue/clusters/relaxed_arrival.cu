// The arrival at the cluster barrier is relaxed, and there is no fence.
// launch: grid 2, cluster 2
#include "../catalogue.cuh"

BODY {
    __shared__ int x[64];
    const u32 rank = cluster_rank();
    const int t = threadIdx.x;
    x[t] = in[t];
    if (kMistake)
        cluster_arrive_relaxed();
    else
        cluster_arrive();
    cluster_wait();
    out[64 * rank + t] = cluster_load(of_rank(x + 63 - t, rank ^ 1));
    cluster_sync();
}

TWINS
