// The accumulator is overwritten by the next product while loads of it may be under way.
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
    if (!kMistake) tc_wait_load();
    tc_before();
    __syncthreads();
    tc_after();
    if (x.first) {
        x.multiply();
        tc_commit(x.bar);
    }
    mbar_wait(x.bar, 1);
    tc_after();
    tc_wait_load();
    out[threadIdx.x] = v;
    x.end();
}

TWINS
