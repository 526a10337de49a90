// __syncthreads() under a condition that half of each warp meets.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[64];
    const int t = threadIdx.x;
    x[t] = in[t];
    if (kMistake) {
        if (t % 2) __syncthreads();
    } else {
        __syncthreads();
    }
    out[t] = x[t ^ 32];
}

TWINS
