// The last turns of a pipeline of cp.async commit nothing, and wait as if they did.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[2][64];
    const int t = threadIdx.x;
    int sum = 0;
    copy_async(&x[0][t], in + t);
    copy_commit();
    for (int turn = 0; turn < 4; ++turn) {
        if (turn < 3) copy_async(&x[(turn + 1) % 2][t], in + 64 * (turn + 1) + t);
        if (!kMistake || turn < 3) copy_commit();
        copy_wait<1>();
        __syncthreads();
        sum += x[turn % 2][63 - t];
        __syncthreads();
    }
    out[t] = sum;
    copy_wait<0>();
}

TWINS
