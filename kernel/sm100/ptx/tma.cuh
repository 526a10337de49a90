// TMA: bulk copies of tensor tiles. Issued by one thread.
#pragma once

#include <stdint.h>

#include "fmha_params.h"

namespace fmha::ptx {

// Hides the latency of the descriptor's first read. The map lies in the kernel's parameters.
__device__ __forceinline__ void prefetch_tensor_map(const FmhaTensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies the box at (x, y, z) to `destination` and counts its bytes on `barrier`. Elements outside the tensor arrive as
// zero and count as well, so the barrier always expects the whole box.
__device__ __forceinline__ void tma_load_3d(uint32_t destination, const FmhaTensorMap& map, uint32_t barrier, int32_t x,
                                            int32_t y, int32_t z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

}  // namespace fmha::ptx
