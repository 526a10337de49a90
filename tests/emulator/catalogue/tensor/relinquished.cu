// The right to allocate is given up before the last allocation.
// launch: block 128
#include "../tensor.cuh"

BODY {
    __shared__ u32 slot;
    const int t = threadIdx.x;
    if (t < 32) {
        if (kMistake) tc_relinquish();
        tc_alloc(&slot, 64);
        if (!kMistake) tc_relinquish();
        __syncwarp();
        tc_dealloc(slot, 64);
    }
    out[t] = in[t];
}

TWINS
