// A wait is given the token of the phase before.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 bar;
    __shared__ int x[64];
    const int t = threadIdx.x;
    if (t == 0) mbar_init(&bar, 64);
    __syncthreads();
    u64 token = 0;
    int sum = 0;
    for (int turn = 0; turn < 4; ++turn) {
        x[t] = in[64 * turn + t];
        if (!kMistake || turn % 2 == 0)
            token = mbar_arrive_token(&bar);
        else
            mbar_arrive(&bar);
        mbar_wait_token(&bar, token);
        sum += x[63 - t];
        __syncthreads();
    }
    out[t] = sum;
}

TWINS
