// One thread waits for the launch before, and the others do not wait for it.
// launch: launches 2
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (t == 0) asm volatile("griddepcontrol.wait;" ::: "memory");
    if (!kMistake) __syncthreads();
    const int v = out[63 - t];
    __syncthreads();
    out[t] = v + in[t];
}

TWINS
