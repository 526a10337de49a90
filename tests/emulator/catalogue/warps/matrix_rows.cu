// ldmatrix reads rows that other lanes have written, with no __syncwarp() before.
// launch: block 32
#include "../catalogue.cuh"

BODY {
    __shared__ alignas(16) int x[32];
    const int t = threadIdx.x;
    x[t] = in[t];
    if (!kMistake) __syncwarp();
    int v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(v)
                 : "r"(shared(x + 4 * (t % 8)))
                 : "memory");
    out[t] = v;
}

TWINS
