// Two roles name the same barrier with counts of their own.
// launch: block 96
#include "../catalogue.cuh"

BODY {
    __shared__ int x[96];
    const int t = threadIdx.x;
    x[t] = in[t];
    bar_sync(1, kMistake && t < 32 ? 64 : 96);
    out[t] = x[95 - t];
}

TWINS
