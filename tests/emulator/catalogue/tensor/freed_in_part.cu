// Fewer columns are given back than were allocated.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    if (x.first) {
        x.multiply();
        tc_commit(x.bar);
    }
    mbar_wait(x.bar, 0);
    tc_after();
    const int v = tc_load(x.quarter);
    tc_wait_load();
    out[threadIdx.x] = v;
    tc_before();
    __syncthreads();
    tc_after();
    if (threadIdx.x < 32) tc_dealloc(x.tm, kMistake ? 32 : 64);
}

TWINS
