// The flag that ends a loop is cleared for the next turn while others still read it.
#include "../catalogue.cuh"

BODY {
    __shared__ int again;
    const int t = threadIdx.x;
    int v = t < 32 ? 0 : in[t], turns = 0;
    for (;;) {
        if (t == 0) again = 0;
        __syncthreads();
        if (v > 16) {
            v -= 16;
            again = 1;
        }
        __syncthreads();
        const int more = again;
        if (!kMistake) __syncthreads();
        ++turns;
        if (!more) break;
    }
    out[t] = turns;
}

TWINS
