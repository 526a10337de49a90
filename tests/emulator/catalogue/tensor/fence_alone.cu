// Lane 0 of each warp issues the proxy fence for the operand that all lanes have written.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    x.tile[threadIdx.x] = 0x3F803F80;
    if (!kMistake || threadIdx.x % 32 == 0) proxy_fence();
    __syncthreads();
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
