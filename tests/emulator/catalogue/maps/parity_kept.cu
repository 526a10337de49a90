// The wait for the second box has the parity of the first.
// launch: maps 1
#include "../tensor.cuh"

MAP_BODY {
    __shared__ u64 full;
    __shared__ alignas(128) int x[128];
    const int t = threadIdx.x;
    if (t == 0) {
        mbar_init(&full, 1);
        mbar_fence_init();
    }
    __syncthreads();
    int sum = 0;
    for (int k = 0; k < 2; ++k) {
        if (t == 0) {
            mbar_expect(&full, 512);
            map_load(x, from, 0, 8 * k, &full);
        }
        mbar_wait(&full, kMistake ? 0 : k);
        sum += x[127 - t];
        __syncthreads();
    }
    out[t] = sum;
    mbar_wait(&full, 1);
}

MAP_TWINS
