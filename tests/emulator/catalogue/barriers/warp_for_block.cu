// __syncwarp() stands where the data crosses warps.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[64];
    const int t = threadIdx.x;
    x[t] = in[t];
    if (kMistake)
        __syncwarp();
    else
        __syncthreads();
    out[t] = x[t ^ 32];
}

TWINS
