// A shuffle under a full mask that only half of the warp executes.
// launch: block 32
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    int v = in[t];
    if (kMistake) {
        if (t < 16) v += __shfl_xor_sync(0xffffffffu, v, 1);
    } else {
        const int other = __shfl_xor_sync(0xffffffffu, v, 1);
        if (t < 16) v += other;
    }
    out[t] = v;
}

TWINS
