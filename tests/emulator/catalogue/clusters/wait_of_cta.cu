// A wait acquires at the scope of its block what a peer has written.
// launch: grid 2, cluster 2
// missed: the scope of a wait is not followed. Without one it is the block's, and so released kernels wait for peers.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 bar;
    __shared__ int x[64];
    const u32 rank = cluster_rank();
    const int t = threadIdx.x;
    if (t == 0) {
        mbar_init(&bar, 64);
        mbar_fence_init();
    }
    cluster_sync();
    cluster_store(of_rank(x + t, rank ^ 1), in[t]);
    arrive_at(of_rank(&bar, rank ^ 1));
    if (kMistake)
        mbar_wait(&bar, 0);
    else
        mbar_wait_cluster(&bar, 0);
    out[64 * rank + t] = x[63 - t];
    cluster_sync();
}

TWINS
