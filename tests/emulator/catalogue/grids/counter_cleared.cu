// The first block clears a counter that the others may have raised.
// launch: grid 2
#include "../catalogue.cuh"

BODY {
    int* count = out;
    const int t = threadIdx.x;
    if (kMistake && blockIdx.x == 0 && t == 0) *count = 0;
    if (t == 0) atomicAdd(count, 1);
    out[64 + 64 * blockIdx.x + t] = in[t];
}

TWINS
