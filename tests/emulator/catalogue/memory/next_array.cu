// An index runs over the end of one shared array into the next.
#include "../catalogue.cuh"

BODY {
    __shared__ int first[64], second[64];
    const int t = threadIdx.x;
    second[t] = in[t];
    __syncthreads();
    first[t] = in[64 + t];
    if (kMistake && in[0] == 0 && t == 63) first[t + 1 + in[0]] = in[t];
    __syncthreads();
    out[t] = first[63 - t] + second[63 - t];
}

TWINS
