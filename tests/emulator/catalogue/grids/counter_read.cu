// A counter that all blocks raise is read with a plain load.
// launch: grid 2
#include "../catalogue.cuh"

BODY {
    int* count = out;
    if (threadIdx.x == 0) {
        atomicAdd(count, in[1]);
        out[64 + blockIdx.x] = kMistake ? *count : atomicAdd(count, 0);
    }
}

TWINS
