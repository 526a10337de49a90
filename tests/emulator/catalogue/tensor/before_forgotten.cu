// Tensor memory is handed over with no tcgen05.fence::before_thread_sync.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    for (int k = 0; k < 16; ++k) tc_store(x.quarter + k, 0);
    tc_wait_store();
    if (!kMistake) tc_before();
    __syncthreads();
    tc_after();
    if (x.first) {
        x.multiply(0, true);
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
