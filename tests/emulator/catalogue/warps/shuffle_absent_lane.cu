// A shuffle reads a lane that its mask leaves out.
// launch: block 32
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    int v = in[t];
    if (t < 16) v += __shfl_down_sync(0xffffu, v, kMistake ? 8 : 8, kMistake ? 32 : 16);
    out[t] = v;
}

TWINS
