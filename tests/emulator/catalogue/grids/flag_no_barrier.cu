// One thread sets the flag, and nothing makes it wait for the others' data.
// launch: grid 2
#include "../catalogue.cuh"

BODY {
    int *data = out, *flag = out + 64;
    const int t = threadIdx.x;
    if (blockIdx.x == 0) {
        data[t] = in[t];
        __threadfence();
        if (!kMistake) __syncthreads();
        if (t == 0) store_release(flag, 1);
    } else {
        if (t == 0)
            while (!load_acquire(flag)) {
            }
        __syncthreads();
        out[128 + t] = data[63 - t];
    }
}

TWINS
