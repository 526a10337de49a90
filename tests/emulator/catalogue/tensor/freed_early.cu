// Tensor memory is given back before all warps have loaded from it.
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
    if (kMistake) {
        if (threadIdx.x < 32) tc_dealloc(x.tm, 64);
    } else {
        x.end();
    }
}

TWINS
