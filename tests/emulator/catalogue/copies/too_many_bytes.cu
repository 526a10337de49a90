// expect_tx announces more bytes than the copies bring.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 full;
    __shared__ alignas(16) int x[64];
    const int t = threadIdx.x;
    if (t == 0) {
        mbar_init(&full, 1);
        mbar_fence_init();
    }
    __syncthreads();
    if (t == 0) {
        mbar_expect(&full, kMistake ? 272 : 256);
        bulk_load(x, in, 256, &full);
    }
    mbar_wait(&full, 0);
    out[t] = x[63 - t];
}

TWINS
