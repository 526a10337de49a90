// Lane 0 arrives for its warp with no __syncwarp() before.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 full;
    __shared__ int x[32];
    const int t = threadIdx.x;
    if (t == 0) mbar_init(&full, 1);
    __syncthreads();
    if (t < 32) {
        x[t] = in[t];
        if (!kMistake) __syncwarp();
        if (t == 0) mbar_arrive(&full);
    } else {
        mbar_wait(&full, 0);
        out[t] = x[63 - t];
    }
}

TWINS
