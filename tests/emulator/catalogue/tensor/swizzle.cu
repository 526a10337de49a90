// A matrix descriptor says that the operand is swizzled, and it was written without.
// launch: block 128
// missed: all bytes that the product reads are written and ordered: only the numbers are wrong.
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    if (x.first) {
        const u64 operand = kMistake ? x.operand | u64{6} << 61 : x.operand;
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
