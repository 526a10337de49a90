// One thread computes what all read, and nothing makes them wait for it.
#include "../catalogue.cuh"

BODY {
    __shared__ int scale;
    if (threadIdx.x == 0) scale = in[0];
    if (!kMistake) __syncthreads();
    out[threadIdx.x] = scale * in[threadIdx.x];
}

TWINS
