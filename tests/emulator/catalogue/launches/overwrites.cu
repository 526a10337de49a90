// A dependent launch overwrites what the launch before it may still read.
// launch: launches 2
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (!kMistake) asm volatile("griddepcontrol.wait;" ::: "memory");
    out[64 + t] = out[t];
    __syncthreads();
    if (in[0] == 0) out[t] = in[t];
}

TWINS
