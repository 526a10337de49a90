// The warps of a block leave a loop with a barrier in it after different numbers of turns.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[64];
    const int t = threadIdx.x;
    int sum = 0;
    for (int turn = 0; turn < (kMistake && t < 32 ? 2 : 3); ++turn) {
        x[t] = in[64 * turn + t];
        __syncthreads();
        sum += x[63 - t];
        __syncthreads();
    }
    out[t] = sum;
}

TWINS
