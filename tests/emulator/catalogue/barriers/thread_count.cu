// A named barrier expects a warp more than comes.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[64];
    const int t = threadIdx.x;
    x[t] = in[t];
    bar_sync(1, kMistake ? 96 : 64);
    out[t] = x[t ^ 32];
}

TWINS
