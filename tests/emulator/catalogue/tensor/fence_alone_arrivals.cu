// Lane 0 of each warp issues the proxy fence, and every thread arrives for what it has written of the operand.
// launch: block 128
#include "../tensor.cuh"

BODY {
    __shared__ u64 full;
    const Tensor x = begin();
    if (x.first) mbar_init(&full, 96);
    __syncthreads();
    if (threadIdx.x >= 32) {
        x.tile[threadIdx.x] = 0x3F803F80;
        if (!kMistake || threadIdx.x % 32 == 0) proxy_fence();
        mbar_arrive(&full);
    }
    if (x.first) {
        mbar_wait(&full, 0);
        tc_after();
        x.multiply();
        tc_commit(x.bar);
    }
    __syncwarp();
    mbar_wait(x.bar, 0);
    tc_after();
    const int v = tc_load(x.quarter);
    tc_wait_load();
    out[threadIdx.x] = v;
    x.end();
}

TWINS
