// A bulk copy brings global memory that nobody has written.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 full;
    __shared__ alignas(16) int x[64];
    const int t = threadIdx.x;
    if (t == 0) {
        mbar_init(&full, 1);
        mbar_fence_init();
        mbar_expect(&full, 256);
        bulk_load(x, kMistake ? out + 512 : in, 256, &full);
    }
    __syncthreads();
    mbar_wait(&full, 0);
    out[t] = x[t];
}

TWINS
