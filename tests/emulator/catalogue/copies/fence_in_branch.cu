// The proxy fence stands in the branch of those that have written nothing.
#include "../catalogue.cuh"

BODY {
    __shared__ alignas(16) int x[32];
    const int t = threadIdx.x;
    if (t < 32) {
        x[t] = in[t];
        if (!kMistake) proxy_fence();
    } else if (kMistake) {
        proxy_fence();
    }
    __syncthreads();
    if (t == 0) {
        bulk_store(out, x, sizeof x);
        bulk_wait();
    }
}

TWINS
