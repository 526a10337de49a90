// A lock is taken that the host has not cleared.
#include "../catalogue.cuh"

BODY {
    int* lock = out + 512;
    if (threadIdx.x == 0) {
        if (!kMistake) atomicExch(lock, 0);
        out[0] = atomicCAS(lock, 0, 1);
    }
}

TWINS
