// An instruction descriptor whose N the instruction does not have.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    if (x.first) {
        tc_mma(x.tm, x.operand, x.operand, kMistake ? 0x8000490 : kShape, false);
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
