// Every thread of a warp issues the product.
// launch: block 128
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    if (kMistake ? threadIdx.x < 32 : x.first) x.multiply();
    __syncwarp();
    if (x.first) tc_commit(x.bar);
    mbar_wait(x.bar, 0);
    tc_after();
    const int v = tc_load(x.quarter);
    tc_wait_load();
    out[threadIdx.x] = v;
    x.end();
}

TWINS
