// Increments of shared counters that are no atomics.
#include "../catalogue.cuh"

BODY {
    __shared__ int count[8];
    const int t = threadIdx.x;
    if (t < 8) count[t] = 0;
    __syncthreads();
    if (kMistake)
        count[in[t] & 7] += 1;
    else
        atomicAdd(&count[in[t] & 7], 1);
    __syncthreads();
    if (t < 8) out[t] = count[t];
}

TWINS
