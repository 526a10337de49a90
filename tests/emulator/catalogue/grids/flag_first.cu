// The flag is set before the data that it is for.
// launch: grid 2
#include "../catalogue.cuh"

BODY {
    int *data = out, *flag = out + 64;
    const int t = threadIdx.x;
    if (blockIdx.x == 0) {
        if (!kMistake) data[t] = in[t];
        __syncthreads();
        if (t == 0) {
            __threadfence();
            store_release(flag, 1);
        }
        if (kMistake) data[t] = in[t];
    } else {
        if (t == 0)
            while (!load_acquire(flag)) {
            }
        __syncthreads();
        out[128 + t] = data[63 - t];
    }
}

TWINS
