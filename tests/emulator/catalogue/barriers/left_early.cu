// Threads behind the end return before a barrier that the others come to.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[64];
    const int t = threadIdx.x;
    x[t] = t;
    if (kMistake && t >= 32) return;
    __syncthreads();
    out[t] = x[t];
}

TWINS
