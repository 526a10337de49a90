// The bytes of a copy are announced behind it, by another warp.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 bar;
    __shared__ alignas(16) int x[64];
    const int t = threadIdx.x;
    if (t == 0) {
        mbar_init(&bar, kMistake ? 2 : 1);
        mbar_fence_init();
    }
    __syncthreads();
    if (t == 0) {
        if (kMistake)
            mbar_arrive(&bar);
        else
            mbar_expect(&bar, sizeof x);
        bulk_load(x, in, sizeof x, &bar);
    }
    if (kMistake && t == 32) mbar_arrive(&bar);
    mbar_wait(&bar, 0);
    out[t] = x[63 - t];
}

TWINS
