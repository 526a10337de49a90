// An index of -1 reaches the array before.
#include "../catalogue.cuh"

BODY {
    __shared__ int first[64], second[64];
    const int t = threadIdx.x;
    first[t] = second[t] = in[t];
    __syncthreads();
    const int v = t > 0 || kMistake ? first[t - 1] + second[t - 1] : 0;
    out[t] = v + first[63 - t] + second[63 - t];
}

TWINS
