// A volatile flag without any fence.
// launch: grid 2
#include "../catalogue.cuh"

BODY {
    int *data = out, *flag = out + 64;
    const int t = threadIdx.x;
    if (blockIdx.x == 0) {
        data[t] = in[t];
        if (!kMistake) __threadfence();
        __syncthreads();
        if (t == 0) *(volatile int*)flag = 1;
    } else {
        if (t == 0)
            while (!*(volatile int*)flag) {
            }
        if (!kMistake) __threadfence();
        __syncthreads();
        out[128 + t] = data[63 - t];
    }
}

TWINS
