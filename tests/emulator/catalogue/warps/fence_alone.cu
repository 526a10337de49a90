// Lane 0 issues the proxy fence for what all lanes have written.
// launch: block 32
#include "../catalogue.cuh"

BODY {
    __shared__ alignas(16) int x[32];
    const int t = threadIdx.x;
    x[t] = in[t];
    if (!kMistake || t == 0) proxy_fence();
    __syncwarp();
    if (t == 0) {
        bulk_store(out, x, sizeof x);
        bulk_wait();
    }
}

TWINS
