// The first product of the second tile accumulates on the first tile.
// launch: block 128
// missed: the accumulator is written and ordered, and a program may want to go on from it: only the numbers are wrong.
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    int sum = 0;
    for (int tile = 0; tile < 2; ++tile) {
        if (x.first) {
            x.multiply(0, kMistake && tile > 0);
            x.multiply(0, true);
            tc_commit(x.bar);
        }
        mbar_wait(x.bar, tile);
        tc_after();
        sum += tc_load(x.quarter);
        tc_wait_load();
        tc_before();
        __syncthreads();
        tc_after();
    }
    out[threadIdx.x] = sum;
    x.end();
}

TWINS
