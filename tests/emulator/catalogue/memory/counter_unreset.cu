// A counter is taken to be zero, and nobody has set it.
#include "../catalogue.cuh"

BODY {
    int* counter = out + 512;
    if (threadIdx.x == 0 && !kMistake) *counter = 0;
    __syncthreads();
    out[threadIdx.x] = atomicAdd(counter, 1);
}

TWINS
