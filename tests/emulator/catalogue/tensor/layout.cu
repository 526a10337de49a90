// A matrix descriptor without the bits that sm_100 asks for.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    if (x.first) {
        const u64 operand = kMistake ? x.operand ^ 1ull << 46 : x.operand;
        tc_mma(x.tm, operand, operand, kShape, false);
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
