// tcgen05.fence::after_thread_sync stands before the wait.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    if (x.first) {
        x.multiply();
        tc_commit(x.bar);
    }
    if (kMistake) tc_after();
    mbar_wait(x.bar, 0);
    if (!kMistake) tc_after();
    const int v = tc_load(x.quarter);
    tc_wait_load();
    out[threadIdx.x] = v;
    x.end();
}

TWINS
