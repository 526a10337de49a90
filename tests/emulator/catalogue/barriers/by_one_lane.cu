// One lane of each warp comes to a barrier that counts all of them.
#include "../catalogue.cuh"

BODY {
    __shared__ int x[64];
    const int t = threadIdx.x;
    x[t] = in[t];
    if (!kMistake || t % 32 == 0) bar_sync(1, 64);
    __syncwarp();
    out[t] = x[t ^ 32];
}

TWINS
