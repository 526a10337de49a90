// The counter is raised before the block's other threads have written.
// launch: grid 2
#include "../catalogue.cuh"

BODY {
    __shared__ bool last;
    int *part = out, *done = out + 64;
    const int t = threadIdx.x;
    if (t >= 32) part[32 * blockIdx.x + t - 32] = in[t];
    __threadfence();
    if (!kMistake) __syncthreads();
    if (t == 0) last = atomicAdd(done, 1) == 1;
    __syncthreads();
    if (last) {
        __threadfence();
        out[128 + t] = part[63 - t];
    }
}

TWINS
