// A barrier's memory becomes data while the barrier lives.
#include "../catalogue.cuh"

BODY {
    __shared__ u64 full;
    const int t = threadIdx.x;
    if (t == 0) mbar_init(&full, 64);
    __syncthreads();
    mbar_arrive(&full);
    mbar_wait(&full, 0);
    __syncthreads();
    if (t == 0) {
        if (!kMistake) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared(&full)) : "memory");
        *(volatile int*)&full = in[0];
        out[0] = *(volatile int*)&full;
    }
}

TWINS
