// A thread's own array is read where nothing was written.
#include "../catalogue.cuh"

BODY {
    int own[8];
    const int t = threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < (kMistake ? 7 : 8); ++k) own[in[k]] = in[t + k];
    int sum = 0;
#pragma unroll 1
    for (int k = 0; k < 8; ++k) sum += own[in[k]];
    out[t] = sum;
}

TWINS
