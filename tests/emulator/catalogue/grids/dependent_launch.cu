// A dependent launch reads what the launch before it writes, without griddepcontrol.wait.
// missed: launches run one after another here.
#include "../catalogue.cuh"

BODY {
    if (!kMistake) asm volatile("griddepcontrol.wait;" ::: "memory");
    out[threadIdx.x] = in[threadIdx.x];
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

TWINS
