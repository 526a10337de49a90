// One warpgroup stores to columns that another still loads.
// launch: block 256
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    const u32 quarter = x.tm + ((threadIdx.x / 32 % 4) << 21);
    if (threadIdx.x < 128) {
        tc_store(quarter, threadIdx.x);
        tc_wait_store();
    }
    tc_before();
    __syncthreads();
    tc_after();
    if (threadIdx.x < 128) {
        const int v = tc_load(quarter);
        tc_wait_load();
        out[threadIdx.x] = v;
    }
    if (!kMistake) {
        tc_before();
        __syncthreads();
        tc_after();
    }
    if (threadIdx.x >= 128) {
        tc_store(quarter, 0);
        tc_wait_store();
    }
    x.end();
}

TWINS
