// Of two warpgroups the second takes the lanes behind the last.
// launch: block 256
#include "../tensor.cuh"

BODY {
    const Tensor x = begin();
    const int t = threadIdx.x, warp = t / 32;
    const u32 quarter = x.tm + (warp % 4 << 21);
    if (t < 128) {
        tc_store(quarter, t);
        tc_wait_store();
    }
    tc_before();
    __syncthreads();
    tc_after();
    const int v = tc_load(kMistake ? x.tm + (warp << 21) : quarter);
    tc_wait_load();
    out[t] = v;
    x.end();
}

TWINS
