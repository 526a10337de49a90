// The tile of the next turn is written while others still read that of this one.
#include "../catalogue.cuh"

BODY {
    __shared__ int tile[64];
    const int t = threadIdx.x;
    int sum = 0;
    for (int turn = 0; turn < 4; ++turn) {
        tile[t] = in[64 * turn + t];
        __syncthreads();
        sum += tile[63 - t];
        if (!kMistake) __syncthreads();
    }
    out[t] = sum;
}

TWINS
