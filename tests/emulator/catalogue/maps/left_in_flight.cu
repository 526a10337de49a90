// A thread exits with its store under way.
// launch: maps 1
#include "../tensor.cuh"

MAP_BODY {
    __shared__ alignas(128) int x[128];
    const int t = threadIdx.x;
    x[t] = in[t];
    x[t + 64] = in[t];
    proxy_fence();
    __syncthreads();
    if (t == 0) {
        map_store(to, 0, 0, x);
        if (!kMistake) bulk_wait();
    }
}

MAP_TWINS
