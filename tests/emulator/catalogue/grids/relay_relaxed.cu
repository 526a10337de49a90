// A block that passes a flag on neither acquires nor releases: what the first has written does not come with it.
// launch: grid 3, block 1
#include "../catalogue.cuh"

BODY {
    int *data = out, *flag = out + 64;
    const int t = threadIdx.x;
    if (blockIdx.x == 0) {
        data[t] = in[t];
        if (t == 0) store_release(flag, 1);
    } else if (blockIdx.x == 1) {
        if (t == 0) {
            if (kMistake) {
                while (!load_relaxed(flag)) {
                }
                store_relaxed(flag + 1, 1);
            } else {
                while (!load_acquire(flag)) {
                }
                store_release(flag + 1, 1);
            }
        }
    } else if (t == 0) {
        while (!load_acquire(flag + 1)) {
        }
        out[128] = data[0];
    }
}

TWINS
