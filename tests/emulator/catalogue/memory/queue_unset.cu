// A ticket is drawn from a counter that the host has not cleared.
#include "../catalogue.cuh"

BODY {
    __shared__ int ticket;
    int* queue = out + 512;
    if (threadIdx.x == 0 && !kMistake) atomicExch(queue, 0);
    if (threadIdx.x == 0) ticket = atomicAdd(queue, 1);
    __syncthreads();
    out[threadIdx.x] = ticket;
}

TWINS
