// expect_tx announces fewer bytes than the copies bring.
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
        mbar_expect(&full, kMistake ? 128 : 256);
        bulk_load(x, in, 128, &full);
        bulk_load(x + 32, in + 32, 128, &full);
    }
    mbar_wait(&full, 0);
    out[t] = x[63 - t];
}

TWINS
