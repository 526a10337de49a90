// A lock is given back with no fence behind what it protects.
// launch: grid 2
#include "../catalogue.cuh"

BODY {
    int *lock = out, *sum = out + 1;
    if (threadIdx.x) return;
    while (atomicCAS(lock, 0, 1)) {
    }
    __threadfence();
    *sum += in[blockIdx.x];
    asm volatile("" ::: "memory");
    if (!kMistake) __threadfence();
    atomicExch(lock, 0);
}

TWINS
