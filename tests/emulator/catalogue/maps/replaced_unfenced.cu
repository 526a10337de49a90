// A copy uses a map that the block has changed, with no acquire of the tensormap proxy.
// launch: maps 1
#include "../tensor.cuh"

MAP_BODY {
    __shared__ u64 full;
    __shared__ alignas(128) int x[128];
    __shared__ alignas(128) u32 draft[32];
    const int t = threadIdx.x;
    Map* const map = reinterpret_cast<Map*>(out + 128);
    if (t < 32) {
        draft[t] = reinterpret_cast<const u32*>(&from)[t];
        __syncwarp();
        if (t == 0) {
            asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(shared(draft)),
                         "l"(in + 128)
                         : "memory");
            mbar_init(&full, 1);
            mbar_fence_init();
        }
        __syncwarp();
        asm volatile(
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], "
            "128;" ::"l"(map),
            "r"(shared(draft))
            : "memory");
        if (!kMistake)
            asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
        if (t == 0) {
            mbar_expect(&full, 512);
            map_load(x, *map, 0, 0, &full);
        }
    }
    __syncthreads();
    mbar_wait(&full, 0);
    out[t] = x[127 - t];
}

MAP_TWINS
