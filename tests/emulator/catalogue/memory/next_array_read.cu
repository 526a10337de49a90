// An index runs over the end of one shared array, and the next one is read.
#include "../catalogue.cuh"

BODY {
    __shared__ int first[64], second[64];
    const int t = threadIdx.x;
    second[t] = in[t];
    first[t] = in[64 + t];
    __syncthreads();
    const int k = in[t] + (kMistake ? 1 : 0);
    out[t] = first[k] + second[63 - t];
}

TWINS
