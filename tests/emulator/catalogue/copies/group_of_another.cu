// One thread stores, another waits for the store.
#include "../catalogue.cuh"

BODY {
    __shared__ alignas(16) int x[64];
    const int t = threadIdx.x;
    for (int turn = 0; turn < 2; ++turn) {
        x[t] = in[64 * turn + t];
        proxy_fence();
        __syncthreads();
        if (t == 0) bulk_store(out + 64 * turn, x, sizeof x);
        if (t == (kMistake ? 32 : 0)) bulk_wait_read();
        __syncthreads();
    }
    if (t == 0) bulk_wait();
}

TWINS
