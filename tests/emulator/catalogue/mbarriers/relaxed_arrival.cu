// The arrival is relaxed, and no fence stands before it.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 full;
    __shared__ int x[32];
    const int t = threadIdx.x;
    if (t == 0) mbar_init(&full, 32);
    __syncthreads();
    if (t < 32) {
        x[t] = in[t];
        if (kMistake)
            mbar_arrive_relaxed(&full);
        else
            mbar_arrive(&full);
    } else {
        mbar_wait(&full, 0);
        out[t - 32] = x[63 - t];
    }
}

TWINS
