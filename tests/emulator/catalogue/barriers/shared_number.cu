// Two groups of warps use one named barrier for what each of them waits for.
// launch: block 128
#include "../catalogue.cuh"

BODY {
    __shared__ int x[128];
    const int t = threadIdx.x, group = t / 64;
    x[t] = in[t];
    bar_sync(kMistake ? 1 : 1 + group, 64);
    out[t] = x[t ^ 32];
}

TWINS
