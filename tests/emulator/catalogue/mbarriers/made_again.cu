// A barrier is initialised once more for the second tile, and lives still.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 bar;
    __shared__ int x[64];
    const int t = threadIdx.x;
    int sum = 0;
    for (int tile = 0; tile < 2; ++tile) {
        if (t == 0) {
            if (tile > 0 && !kMistake) mbar_inval(&bar);
            mbar_init(&bar, 64);
        }
        __syncthreads();
        x[t] = in[64 * tile + t];
        mbar_arrive(&bar);
        mbar_wait(&bar, 0);
        sum += x[63 - t];
        __syncthreads();
    }
    out[t] = sum;
}

TWINS
