// What a store has written is read with no wait for it.
// launch: maps 1
#include "../tensor.cuh"

MAP_BODY {
    __shared__ alignas(128) int x[128];
    const int t = threadIdx.x;
    x[t] = in[t];
    x[t + 64] = in[t];
    proxy_fence();
    __syncthreads();
    if (t == 0) {
        map_store(to, 0, 0, x);
        if (kMistake) bulk_wait_read();
        else bulk_wait();
    }
    __syncthreads();
    out[512 + t] = *(volatile int*)(out + t);
    if (t == 0) bulk_wait();
}

MAP_TWINS
