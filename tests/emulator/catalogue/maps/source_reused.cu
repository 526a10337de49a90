// The source of a store is written again before it has been read.
// launch: maps 1
#include "../tensor.cuh"

MAP_BODY {
    __shared__ alignas(128) int x[128];
    const int t = threadIdx.x;
    for (int k = 0; k < 2; ++k) {
        x[t] = in[t] + k;
        x[t + 64] = in[t];
        proxy_fence();
        __syncthreads();
        if (t == 0) {
            map_store(to, 0, 8 * k, x);
            if (!kMistake) bulk_wait_read();
        }
        __syncthreads();
    }
    if (t == 0) bulk_wait();
}

MAP_TWINS
