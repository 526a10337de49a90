// A barrier is used with nothing after its initialisation.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 full;
    __shared__ int x[64];
    const int t = threadIdx.x;
    if (t == 0) mbar_init(&full, 64);
    if (!kMistake || t < 32) __syncwarp();
    if (!kMistake) __syncthreads();
    x[t] = in[t];
    mbar_arrive(&full);
    mbar_wait(&full, 0);
    out[t] = x[63 - t];
}

TWINS
