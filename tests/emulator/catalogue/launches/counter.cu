// A counter is cleared for the launch that follows, which does not wait for that.
// launch: launches 2
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (!kMistake) asm volatile("griddepcontrol.wait;" ::: "memory");
    if (t == 0) out[0] = in[0];
    __syncthreads();
    atomicAdd(out, 1);
}

TWINS
