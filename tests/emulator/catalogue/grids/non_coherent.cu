// __ldg() of what the same launch writes.
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    out[t] = in[t];
    __syncthreads();
    out[64 + t] = kMistake ? __ldg(out + 63 - t) : out[63 - t];
}

TWINS
