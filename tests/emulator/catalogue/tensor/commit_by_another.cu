// Another thread commits than the one whose product it is for.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    if (x.first) x.multiply();
    __syncwarp();
    if (threadIdx.x == (kMistake ? 1 : 0)) tc_commit(x.bar);
    mbar_wait(x.bar, 0);
    tc_after();
    const int v = tc_load(x.quarter);
    tc_wait_load();
    out[threadIdx.x] = v;
    x.end();
}

TWINS
