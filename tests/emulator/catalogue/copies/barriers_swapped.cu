// Two loads have a barrier each, and the waits are for the other's.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 bar[2];
    __shared__ alignas(16) int x[2][64];
    const int t = threadIdx.x;
    if (t == 0) {
        mbar_init(&bar[0], 1);
        mbar_init(&bar[1], 1);
        mbar_fence_init();
    }
    __syncthreads();
    if (t == 0)
        for (int k = 0; k < 2; ++k) {
            mbar_expect(&bar[k], sizeof x[k]);
            bulk_load(x[k], in + 64 * k, sizeof x[k], &bar[k]);
        }
    mbar_wait(&bar[kMistake ? 1 : 0], 0);
    int sum = x[0][63 - t];
    mbar_wait(&bar[kMistake ? 0 : 1], 0);
    sum += x[1][t];
    out[t] = sum;
}

TWINS
