// Lane 0 waits for its warp with no __syncwarp() after.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 full;
    __shared__ int x[32];
    const int t = threadIdx.x;
    if (t == 0) mbar_init(&full, 32);
    __syncthreads();
    if (t < 32) {
        x[t] = in[t];
        mbar_arrive(&full);
    } else {
        if (t == 32) mbar_wait(&full, 0);
        if (!kMistake) __syncwarp();
        out[t] = x[63 - t];
    }
}

TWINS
