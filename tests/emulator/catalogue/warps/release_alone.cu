// Lane 0 releases a flag for what its warp has written, with no __syncwarp() before.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[32];
    __shared__ int flag;
    const int t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t < 32) {
        x[t] = in[t];
        if (!kMistake) __syncwarp();
        if (t == 0) asm volatile("st.release.cta.shared.b32 [%0], 1;" ::"r"(shared(&flag)) : "memory");
    } else {
        int seen = 0;
        while (!seen) asm volatile("ld.acquire.cta.shared.b32 %0, [%1];" : "=r"(seen) : "r"(shared(&flag)) : "memory");
        out[t] = x[63 - t];
    }
}

TWINS
