// The result of a bulk store is read after a wait for its reads alone.
#include "../catalogue.cuh"

BODY {
    __shared__ alignas(16) int x[64];
    const int t = threadIdx.x;
    x[t] = in[t];
    proxy_fence();
    __syncthreads();
    if (t == 0) {
        bulk_store(out, x, sizeof x);
        if (kMistake)
            bulk_wait_read();
        else
            bulk_wait();
        out[64] = *(volatile int*)(out + 5);
        bulk_wait();
    }
}

TWINS
