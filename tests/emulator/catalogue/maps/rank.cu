// The coordinates of a copy are more than the map has dimensions.
// launch: maps 1
#include "../tensor.cuh"

MAP_BODY {
    __shared__ u64 full;
    __shared__ alignas(128) int x[128];
    const int t = threadIdx.x;
    if (t == 0) {
        mbar_init(&full, 1);
        mbar_fence_init();
    }
    __syncthreads();
    if (t == 0) {
        mbar_expect(&full, 512);
        if (kMistake)
            asm volatile(
                "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2, "
                "%2}], [%3];" ::"r"(shared(x)),
                "l"(&from), "r"(0), "r"(shared(&full))
                : "memory");
        else
            map_load(x, from, 0, 0, &full);
    }
    mbar_wait(&full, 0);
    out[t] = x[t];
}

MAP_TWINS
