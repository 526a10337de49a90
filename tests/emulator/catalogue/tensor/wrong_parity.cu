// The wait for the commit has the parity of the phase before, and passes at once.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    if (x.first) {
        x.multiply();
        tc_commit(x.bar);
    }
    mbar_wait(x.bar, kMistake ? 1 : 0);
    tc_after();
    const int v = tc_load(x.quarter);
    tc_wait_load();
    out[threadIdx.x] = v;
    x.end();
}

TWINS
