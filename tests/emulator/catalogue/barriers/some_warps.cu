// __syncthreads() under a condition that some of the warps do not meet.
// launch: block 128
#include "../catalogue.cuh"

BODY {
    __shared__ int x[128];
    const int t = threadIdx.x;
    x[t] = in[t];
    if (!kMistake || t < 64) __syncthreads();
    const int v = x[127 - t];
    __syncthreads();
    out[t] = v;
}

TWINS
