// One thread polls, the others do not wait for it.
// launch: grid 2
#include "../catalogue.cuh"

BODY {
    int *data = out, *flag = out + 64;
    const int t = threadIdx.x;
    if (blockIdx.x == 0) {
        data[t] = in[t];
        __syncthreads();
        if (t == 0) {
            __threadfence();
            store_relaxed(flag, 1);
        }
    } else {
        if (t == 0)
            while (!load_acquire(flag)) {
            }
        if (!kMistake) __syncthreads();
        out[128 + t] = data[63 - t];
    }
}

TWINS
