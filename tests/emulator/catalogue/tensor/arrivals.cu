// The barrier expects the arrival of every warp, and the commit is one.
// launch: block 128
#include "../tensor.cuh"

BODY {
    __shared__ u64 bar;
    const Tensor x = begin();
    if (x.first) {
        mbar_init(&bar, kMistake ? 4 : 1);
        mbar_fence_init();
    }
    __syncthreads();
    if (x.first) {
        x.multiply();
        tc_commit(&bar);
    }
    mbar_wait(&bar, 0);
    tc_after();
    const int v = tc_load(x.quarter);
    tc_wait_load();
    out[threadIdx.x] = v;
    x.end();
}

TWINS
