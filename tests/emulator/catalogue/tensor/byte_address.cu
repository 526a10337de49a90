// A matrix descriptor holds the address in bytes, not in units of 16.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    if (x.first) {
        const u64 operand = kMistake ? (shared(x.tile) & 0x3FFF) | kLayout : x.operand;
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
