// The fence behind the data is one of the block, the reader is in another.
// launch: grid 2
#include "../catalogue.cuh"

BODY {
    int *data = out, *flag = out + 64;
    const int t = threadIdx.x;
    if (blockIdx.x == 0) {
        data[t] = in[t];
        __syncthreads();
        if (t == 0) {
            if (kMistake)
                __threadfence_block();
            else
                __threadfence();
            store_relaxed(flag, 1);
        }
    } else {
        if (t == 0)
            while (!load_acquire(flag)) {
            }
        __syncthreads();
        out[128 + t] = data[63 - t];
    }
}

TWINS
