// Blocks add to one word with plain loads and stores.
// launch: grid 4
#include "../catalogue.cuh"

BODY {
    if (threadIdx.x) return;
    if (kMistake)
        out[0] += in[blockIdx.x];
    else
        atomicAdd(out, in[blockIdx.x]);
}

TWINS
