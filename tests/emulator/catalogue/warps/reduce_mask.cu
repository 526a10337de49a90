// A lane takes part in a reduction whose mask does not name it.
// launch: block 32
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    if (t < 24) out[t] = __reduce_add_sync(kMistake ? 0xffffu : 0xffffffu, in[t]);
}

TWINS
