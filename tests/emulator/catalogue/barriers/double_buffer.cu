// The slot of a ring of two is chosen by the wrong bit of the turn.
#include "../catalogue.cuh"

BODY {
    __shared__ int ring[2][64];
    const int t = threadIdx.x;
    int sum = 0;
    for (int turn = 0; turn < 4; ++turn) {
        int* slot = ring[kMistake ? turn >> 1 & 1 : turn & 1];
        slot[t] = in[64 * turn + t];
        __syncthreads();
        sum += slot[63 - t];
    }
    out[t] = sum;
}

TWINS
