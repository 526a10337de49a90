// A block arrives at its peer's barrier, and the peer waits for it, both at the scope of a block.
// launch: grid 2, cluster 2
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
    if (kMistake)
        asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(of_rank(&bar, rank ^ 1))
                     : "memory");
    else
        arrive_at(of_rank(&bar, rank ^ 1));
    mbar_wait_cluster(&bar, 0);
    out[64 * rank + t] = x[63 - t];
    cluster_sync();
}

TWINS
