// Two warps allocate all of tensor memory, and one gives it back behind a barrier that the other does not reach.
#include "../tensor.cuh"

BODY {
    __shared__ u32 slot[2];
    const int warp = threadIdx.x / 32;
    if (kMistake || warp == 0) tc_alloc(&slot[warp], 512);
    __syncthreads();
    out[threadIdx.x] = in[threadIdx.x];
    if (kMistake || warp == 0) tc_dealloc(slot[warp], 512);
}

TWINS
