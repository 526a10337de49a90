// The last steps of a reduction trust a warp to run in lockstep.
#include "../catalogue.cuh"

BODY {
    __shared__ int sum[64];
    const int t = threadIdx.x;
    sum[t] = in[t];
    __syncthreads();
    if (t < 32) {
        int mine = sum[t] + sum[t + 32];
        for (int step = 16; step; step /= 2) {
            if (!kMistake) __syncwarp();
            sum[t] = mine;
            if (!kMistake) __syncwarp();
            mine += *(volatile int*)&sum[t ^ step];
        }
        if (t == 0) out[0] = mine;
    }
}

TWINS
