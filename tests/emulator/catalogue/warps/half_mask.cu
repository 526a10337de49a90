// __syncwarp() of the lower half is taken for that of the warp.
// launch: block 32
#include "../catalogue.cuh"

BODY {
    __shared__ int x[32];
    const int t = threadIdx.x;
    x[t] = in[t];
    if (kMistake) {
        if (t < 16) __syncwarp(0xffff);
    } else {
        __syncwarp();
    }
    out[t] = x[31 - t];
}

TWINS
