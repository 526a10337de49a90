// A bulk store reads what threads have written, with no proxy fence.
#include "../catalogue.cuh"

BODY {
    __shared__ alignas(16) int x[64];
    const int t = threadIdx.x;
    x[t] = in[t];
    if (!kMistake) proxy_fence();
    __syncthreads();
    if (t == 0) {
        bulk_store(out, x, sizeof x);
        bulk_wait();
    }
}

TWINS
