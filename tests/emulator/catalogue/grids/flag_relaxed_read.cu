// The reader polls with a relaxed load and has no fence behind it.
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
        if (t == 0) {
            while (!load_relaxed(flag)) {
            }
            if (!kMistake) __threadfence();
        }
        __syncthreads();
        out[128 + t] = data[63 - t];
    }
}

TWINS
