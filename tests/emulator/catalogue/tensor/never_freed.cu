// One path to the exit leaves out the deallocation.
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
    if (kMistake && in[1] == 1) return;
    x.end();
}

TWINS
