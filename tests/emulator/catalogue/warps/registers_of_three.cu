// Three of a warpgroup's four warps give registers back.
// launch: block 128
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    if (!kMistake || t < 96) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;" ::: "memory");
    out[t] = in[t];
}

TWINS
