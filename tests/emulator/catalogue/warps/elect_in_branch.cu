// A lane is elected from a whole warp in a branch that half of it takes.
// launch: block 32
#include "../catalogue.cuh"

BODY {
    const int t = threadIdx.x;
    u32 elected = 0;
    if (!kMistake || t % 32 < 16)
        asm volatile("{ .reg .pred p; elect.sync _|p, 0xFFFFFFFF; selp.u32 %0, 1, 0, p; }" : "=r"(elected)::"memory");
    out[t] = elected;
}

TWINS
