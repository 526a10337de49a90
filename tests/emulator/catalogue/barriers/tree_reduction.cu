// A tree reduction without the barrier between its steps.
// launch: block 128
#include "../catalogue.cuh"

BODY {
    __shared__ int sum[128];
    const int t = threadIdx.x;
    sum[t] = in[t];
    __syncthreads();
    for (int step = 64; step; step /= 2) {
        if (t < step) sum[t] += sum[t + step];
        if (!kMistake) __syncthreads();
    }
    if (t == 0) out[0] = sum[0];
}

TWINS
