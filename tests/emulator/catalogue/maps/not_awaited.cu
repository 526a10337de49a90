// A box is read before its copy is complete.
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
    if (t == 0) {
        mbar_expect(&full, 512);
        map_load(x, from, 0, 8, &full);
    }
    if (!kMistake) mbar_wait(&full, 0);
    out[t] = x[t];
    mbar_wait(&full, 0);
}

MAP_TWINS
