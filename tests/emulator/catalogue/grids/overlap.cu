// Blocks write a row more than is theirs.
// launch: grid 2
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    if (t < (kMistake ? 40 : 32)) out[32 * blockIdx.x + t] = in[t] + blockIdx.x;
}

TWINS
