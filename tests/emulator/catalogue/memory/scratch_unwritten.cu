// Global scratch memory is read that nobody has written.
#include "../catalogue.cuh"

BODY {
    int* scratch = out + 512;
    const int t = threadIdx.x;
    if (!kMistake) scratch[t] = 0;
    out[t] = scratch[t] + in[t];
}

TWINS
