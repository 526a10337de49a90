// The next copy goes to the stage that is being read.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[2][64];
    const int t = threadIdx.x;
    int sum = 0;
    copy_async(&x[0][t], in + t);
    copy_commit();
    for (int turn = 0; turn < 3; ++turn) {
        copy_wait<0>();
        __syncthreads();
        copy_async(&x[(turn + (kMistake ? 0 : 1)) % 2][t], in + 64 * (turn + 1) + t);
        copy_commit();
        sum += x[turn % 2][63 - t];
        __syncthreads();
    }
    copy_wait<0>();
    out[t] = sum;
}

TWINS
