// The accumulator begins so late that it runs over the end of the allocation.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    if (x.first) {
        x.multiply(kMistake ? 56 : 48);
        tc_commit(x.bar);
    }
    mbar_wait(x.bar, 0);
    tc_after();
    const int v = tc_load(x.quarter + 48);
    tc_wait_load();
    out[threadIdx.x] = v;
    x.end();
}

TWINS
