// A block writes its next partial sum while the block that adds them up may still read the last.
// launch: grid 2
#include "../catalogue.cuh"

BODY {
    int *part = out, *full = out + 64, *empty = out + 65;
    const int t = threadIdx.x;
    if (blockIdx.x == 0) {
        for (int turn = 1; turn <= 3; ++turn) {
            if (!kMistake && t == 0)
                while (load_acquire(empty) != turn - 1) {
                }
            __syncthreads();
            part[t] = in[64 * turn + t];
            __syncthreads();
            if (t == 0) {
                __threadfence();
                store_release(full, turn);
            }
        }
    } else {
        int sum = 0;
        for (int turn = 1; turn <= 3; ++turn) {
            if (t == 0)
                while (load_acquire(full) < turn) {
                }
            __syncthreads();
            sum += part[63 - t];
            __syncthreads();
            if (t == 0) store_release(empty, turn);
        }
        out[128 + t] = sum;
    }
}

TWINS
