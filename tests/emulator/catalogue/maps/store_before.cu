// A store begins before the first row of the tensor.
// launch: maps 1
#include "../tensor.cuh"

MAP_BODY {
    __shared__ alignas(128) int x[128];
    const int t = threadIdx.x;
    for (int k = t; k < 128; k += 64) x[k] = in[k];
    proxy_fence();
    __syncthreads();
    if (t == 0) {
        map_store(to, 0, kMistake ? -8 : 0, x);
        bulk_wait();
    }
}

MAP_TWINS
