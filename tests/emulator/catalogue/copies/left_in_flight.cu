// The block exits with a bulk store that still reads its shared memory.
#include "../catalogue.cuh"

BODY {
    __shared__ alignas(16) int x[64];
    const int t = threadIdx.x;
    x[t] = in[t];
    proxy_fence();
    __syncthreads();
    if (t == 0) {
        bulk_store(out, x, sizeof x);
        if (!kMistake) bulk_wait();
    }
}

TWINS
