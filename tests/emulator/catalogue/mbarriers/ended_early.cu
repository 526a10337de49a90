// A barrier is invalidated while another warp may still wait for it.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 bar;
    __shared__ int x[64];
    const int t = threadIdx.x;
    if (t == 0) mbar_init(&bar, 64);
    __syncthreads();
    x[t] = in[t];
    mbar_arrive(&bar);
    mbar_wait(&bar, 0);
    out[t] = x[63 - t];
    if (!kMistake) __syncthreads();
    if (t == 0) mbar_inval(&bar);
}

TWINS
