// Two stores of one launch write the same box, and nothing orders them.
// launch: maps 1
#include "../tensor.cuh"

MAP_BODY {
    __shared__ alignas(128) int x[256];
    const int t = threadIdx.x;
    for (int k = t; k < 256; k += 64) x[k] = in[k] + k;
    proxy_fence();
    __syncthreads();
    if (t == 0) {
        map_store(to, 0, 0, x);
        map_store(to, 0, kMistake ? 4 : 8, x + 128);
        bulk_wait();
    }
}

MAP_TWINS
