// An index runs over the end of a thread's own array.
#include "../catalogue.cuh"

BODY {
    int own[8];
    const int t = threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < 8; ++k) own[k ^ (t & 7)] = in[t + k];
    int sum = 0;
#pragma unroll 1
    for (int k = 0; k < (kMistake ? 9 : 8); ++k) sum += own[in[k]];
    out[t] = sum;
}

TWINS
