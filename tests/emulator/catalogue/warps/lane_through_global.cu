// A lane reads from global memory what its neighbour has written there, with no __syncwarp() between.
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    volatile int* const scratch = out + 512;
    scratch[t] = in[t];
    if (!kMistake) __syncwarp();
    out[t] = *(const int*)(out + 512 + (t ^ 1));
}

TWINS
