// Lane 0 acquires the flag of another block for its warp, with no __syncwarp() after.
// launch: grid 2, block 32
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    int* const data = out + 512;
    int* const flag = out;  // zero
    if (blockIdx.x == 0) {
        data[t] = in[t];
        __syncwarp();
        if (t == 0) asm volatile("st.release.gpu.global.b32 [%0], 1;" ::"l"(flag) : "memory");
    } else {
        int seen = t != 0;
        while (!seen) asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        if (!kMistake) __syncwarp();
        out[128 + t] = data[31 - t];
    }
}

TWINS
