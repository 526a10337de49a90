// One path through a locked region leaves without giving the lock back.
// launch: grid 3
#include "../catalogue.cuh"

BODY {
    int *lock = out, *sum = out + 1;
    const int t = threadIdx.x;
    if (t == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {
        }
        __threadfence();
        if (kMistake && *sum == 1) return;
        *sum += 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}

TWINS
