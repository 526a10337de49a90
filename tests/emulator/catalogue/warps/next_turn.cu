// Lanes write the next turn's values while others may still read this one's.
// launch: block 32
#include "../catalogue.cuh"

BODY {
    __shared__ int x[32];
    const int t = threadIdx.x;
    int sum = 0;
    for (int turn = 0; turn < 3; ++turn) {
        x[t] = in[32 * turn + t];
        __syncwarp();
        sum += x[31 - t];
        if (!kMistake) __syncwarp();
    }
    out[t] = sum;
}

TWINS
