// The last copy is shorter than the others, and as many bytes are announced.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 bar;
    __shared__ alignas(16) int x[64];
    const int t = threadIdx.x;
    if (t == 0) {
        mbar_init(&bar, 1);
        mbar_fence_init();
    }
    __syncthreads();
    int sum = 0;
    for (int turn = 0; turn < 3; ++turn) {
        const int bytes = turn < 2 ? 256 : 128;
        if (t == 0) {
            mbar_expect(&bar, kMistake ? 256 : bytes);
            bulk_load(x, in + 64 * turn, bytes, &bar);
        }
        mbar_wait(&bar, turn & 1);
        if (4 * t < bytes) sum += x[t];
        __syncthreads();
    }
    out[t] = sum;
}

TWINS
