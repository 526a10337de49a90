// The part of a tile that the input does not reach is read all the same.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[64];
    const int t = threadIdx.x;
    if (t < 48)
        x[t] = in[t];
    else if (!kMistake)
        x[t] = 0;
    __syncthreads();
    out[t] = x[63 - t];
}

TWINS
