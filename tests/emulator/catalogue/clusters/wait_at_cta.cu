// A block waits with .acquire.cta for what its peer has written into its shared memory.
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
    arrive_at(of_rank(&bar, rank ^ 1));
    u32 done = 0;
    while (kMistake && !done)
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(shared(&bar))
            : "memory");
    if (!kMistake) mbar_wait_cluster(&bar, 0);
    out[64 * rank + t] = x[63 - t];
    cluster_sync();
}

TWINS
