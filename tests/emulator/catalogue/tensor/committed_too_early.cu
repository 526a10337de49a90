// The commit stands before the product that it is for.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    if (x.first) {
        if (kMistake) tc_commit(x.bar);
        x.multiply();
        if (!kMistake) tc_commit(x.bar);
    }
    mbar_wait(x.bar, 0);
    tc_after();
    const int v = tc_load(x.quarter);
    tc_wait_load();
    out[threadIdx.x] = v;
    x.end();
}

TWINS
