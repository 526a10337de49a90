// Two staging buffers for bulk stores, and as many may still be read when one is written again.
#include "../catalogue.cuh"

BODY {
    __shared__ alignas(16) int x[2][64];
    const int t = threadIdx.x;
    for (int turn = 0; turn < 4; ++turn) {
        if (t == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kMistake ? 2 : 1) : "memory");
        __syncthreads();
        x[turn % 2][t] = in[64 * turn + t];
        proxy_fence();
        __syncthreads();
        if (t == 0) bulk_store(out + 64 * turn, x[turn % 2], sizeof x[0]);
    }
    if (t == 0) bulk_wait();
}

TWINS
