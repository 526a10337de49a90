// The array is smaller than the box that is copied into it.
// launch: shared 512, maps 1
#include "../tensor.cuh"

MAP_BODY {
    __shared__ u64 full;
    extern __shared__ __align__(128) int x[];
    const int t = threadIdx.x;
    if (t == 0) {
        mbar_init(&full, 1);
        mbar_fence_init();
    }
    __syncthreads();
    if (t == 0) {
        mbar_expect(&full, 512);
        map_load(x + (kMistake ? 32 : 0), from, 0, 8, &full);
    }
    mbar_wait(&full, 0);
    out[t] = x[t];
}

MAP_TWINS
