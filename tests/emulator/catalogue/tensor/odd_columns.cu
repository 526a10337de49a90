// An allocation of 48 columns.
// launch: block 128
#include "../tensor.cuh"

BODY {
    __shared__ u32 slot;
    const int t = threadIdx.x;
    if (t < 32) {
        tc_alloc(&slot, kMistake ? 48 : 64);
        __syncwarp();
        tc_dealloc(slot, kMistake ? 48 : 64);
    }
    out[t] = in[t];
}

TWINS
