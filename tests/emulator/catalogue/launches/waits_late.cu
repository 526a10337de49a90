// The first load of what the launch before writes stands before the wait.
// launch: launches 2
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    int v = 0;
    if (kMistake) v = *(volatile int*)(out + t);
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (!kMistake) v = *(volatile int*)(out + t);
    out[t] = v + in[t];
}

TWINS
