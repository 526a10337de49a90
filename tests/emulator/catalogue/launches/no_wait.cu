// A dependent launch reads what the launch before it writes, without griddepcontrol.wait.
// launch: launches 2
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    if (!kMistake) asm volatile("griddepcontrol.wait;" ::: "memory");
    const int v = out[63 - t];
    __syncthreads();
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    out[t] = v + in[t];
}

TWINS
