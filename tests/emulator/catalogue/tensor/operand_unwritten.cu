// A descriptor points at shared memory that nobody has written.
// launch: block 128
#include "../tensor.cuh"

BODY {
    __shared__ alignas(1024) int other[1024];
    const Tensor x = begin();
    if (!kMistake) {
        for (int k = threadIdx.x; k < 1024; k += 128) other[k] = 0;
        proxy_fence();
    }
    __syncthreads();
    tc_after();
    if (x.first) {
        tc_mma(x.tm, x.operand, shared(other) >> 4 | kLayout, kShape, false);
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
