// The next ticket overwrites the last before all threads have read it.
// launch: grid 2
#include "../catalogue.cuh"

BODY {
    __shared__ int ticket;
    int* next = out;
    const int t = threadIdx.x;
    for (;;) {
        if (t == 0) ticket = atomicAdd(next, 1);
        __syncthreads();
        const int mine = ticket;
        if (!kMistake) __syncthreads();
        if (mine >= 4) break;
        out[64 + 64 * mine + t] = in[64 * mine + t];
    }
}

TWINS
