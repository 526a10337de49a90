// A histogram is read before everybody has counted.
#include "../catalogue.cuh"

BODY {
    __shared__ int count[8];
    const int t = threadIdx.x;
    if (t < 8) count[t] = 0;
    __syncthreads();
    atomicAdd(&count[in[t] & 7], 1);
    if (!kMistake) __syncthreads();
    if (t < 8) out[t] = count[t];
}

TWINS
