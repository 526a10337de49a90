// The readers of a named barrier arrive at it, as its writers should, and do not wait.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[32];
    const int t = threadIdx.x;
    if (t < 32) {
        x[t] = in[t];
        if (kMistake)
            bar_sync(1, 64);
        else
            asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else {
        if (kMistake)
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        else
            bar_sync(1, 64);
        out[t - 32] = x[63 - t];
    }
}

TWINS
