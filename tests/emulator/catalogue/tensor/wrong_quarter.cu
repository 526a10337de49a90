// A warp loads the lanes of another.
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
    const int v = tc_load(kMistake ? x.tm : x.quarter);
    tc_wait_load();
    out[threadIdx.x] = v;
    x.end();
}

TWINS
