// Lane 0 releases a flag to another block for what its warp has written, with no __syncwarp() before.
// launch: grid 2, block 32
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    int* const data = out + 512;
    int* const flag = out;  // zero
    if (blockIdx.x == 0) {
        data[t] = in[t];
        if (!kMistake) __syncwarp();
        if (t == 0) asm volatile("st.release.gpu.global.b32 [%0], 1;" ::"l"(flag) : "memory");
    } else {
        int seen = 0;
        while (!seen) asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        out[128 + t] = data[31 - t];
    }
}

TWINS
