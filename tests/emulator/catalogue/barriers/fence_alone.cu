// __threadfence_block() is taken for a barrier.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[64];
    const int t = threadIdx.x;
    x[t] = in[t];
    if (kMistake)
        __threadfence_block();
    else
        __syncthreads();
    out[t] = x[63 - t];
}

TWINS
