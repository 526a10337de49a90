// tcgen05.cp reads what threads have written, with no proxy fence.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    x.tile[threadIdx.x] = 0x3F803F80;
    if (!kMistake) proxy_fence();
    __syncthreads();
    tc_after();
    if (x.first) {
        asm volatile("tcgen05.cp.cta_group::1.128x256b [%0], %1;" ::"r"(x.tm), "l"(x.operand) : "memory");
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
