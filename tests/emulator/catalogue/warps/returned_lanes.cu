// Threads behind the end return, and the others shuffle with them.
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x, n = 40;
    if (kMistake && t >= n) return;
    int v = t < n ? in[t] : 0;
    for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(~0u, v, step);
    if (t % 32 == 0) out[t] = v;
}

TWINS
