// Both launches add to a sum with atomics, and the second reads it without a wait.
// launch: launches 2
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (!kMistake) asm volatile("griddepcontrol.wait;" ::: "memory");
    atomicAdd(out, in[t]);
    __syncthreads();
    if (t == 0) out[64] = *(volatile int*)out;
}

TWINS
