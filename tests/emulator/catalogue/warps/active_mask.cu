// Lanes of a branch shuffle with those that happen to be active, and read one that is not.
// launch: block 32
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    int v = in[t];
    if (kMistake) {
        if (t % 2 == 0) v += __shfl_down_sync(__activemask(), v, 1);
    } else {
        const int other = __shfl_down_sync(~0u, v, 1);
        if (t % 2 == 0) v += other;
    }
    out[t] = v;
}

TWINS
