// The next product overwrites the accumulator before the others have loaded it.
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
    tc_before();
    if (!kMistake) __syncthreads();
    tc_after();
    if (x.first) {
        x.multiply();
        tc_commit(x.bar);
    }
    mbar_wait(x.bar, 1);
    tc_after();
    out[threadIdx.x] = v;
    x.end();
}

TWINS
