// tcgen05.fence::before_thread_sync stands behind the barrier.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    tc_store(x.quarter, threadIdx.x);
    tc_wait_store();
    if (!kMistake) tc_before();
    __syncthreads();
    if (kMistake) tc_before();
    tc_after();
    if (x.first) {
        x.multiply();
        tc_commit(x.bar);
    }
    mbar_wait(x.bar, 0);
    tc_after();
    const int v = tc_load(x.quarter);
    tc_wait_load();
    out[threadIdx.x] = v;
    x.end();
}

TWINS
