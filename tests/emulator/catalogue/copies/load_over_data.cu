// A bulk copy overwrites what the block has written, with no proxy fence.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 full;
    __shared__ alignas(16) int x[64];
    const int t = threadIdx.x;
    if (t == 0) {
        mbar_init(&full, 1);
        mbar_fence_init();
    }
    x[t] = t;
    if (!kMistake) proxy_fence();
    __syncthreads();
    if (t == 0) {
        mbar_expect(&full, 256);
        bulk_load(x, in, 256, &full);
    }
    mbar_wait(&full, 0);
    out[t] = x[63 - t];
}

TWINS
