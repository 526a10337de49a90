// The proxy fence stands before the writes that it is for.
#include "../catalogue.cuh"

BODY {
    __shared__ alignas(16) int x[64];
    const int t = threadIdx.x;
    if (kMistake) proxy_fence();
    x[t] = in[t];
    if (!kMistake) proxy_fence();
    __syncthreads();
    if (t == 0) {
        bulk_store(out, x, sizeof x);
        bulk_wait();
    }
}

TWINS
