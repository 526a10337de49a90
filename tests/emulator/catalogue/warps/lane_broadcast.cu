// Lane 0 puts down a value and all lanes pick it up, with no __syncwarp() between.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[2];
    const int t = threadIdx.x;
    if (t % 32 == 0) x[t / 32] = in[t];
    if (!kMistake) __syncwarp();
    out[t] = x[t / 32];
}

TWINS
