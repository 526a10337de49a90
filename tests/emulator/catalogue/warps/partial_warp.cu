// The last warp has half of its threads, and a reduction that adds up a whole one.
// launch: block 48
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    const bool half = !kMistake && t >= 32;
    int v = in[t];
    for (int step = half ? 8 : 16; step > 0; step /= 2)
        v += __shfl_down_sync(half ? 0xFFFF : ~0u, v, step, half ? 16 : 32);
    if (t % 32 == 0) out[t] = v;
}

TWINS
