// Some blocks wait for the launch before, and the others take it that this is enough.
// launch: grid 2, launches 2
#include "../catalogue.cuh"

BODY {
    const int t = 64 * blockIdx.x + threadIdx.x;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (!kMistake || blockIdx.x == 0) asm volatile("griddepcontrol.wait;" ::: "memory");
    out[t] = *(volatile int*)(out + t) + in[t];
}

TWINS
