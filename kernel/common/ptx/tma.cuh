// TMA: bulk copies of tensor tiles. Issued by one thread.
#pragma once

#include <stdint.h>

#include "fmha_params.h"

namespace fmha::ptx {

// Hides the latency of the descriptor's first read. The map lies in the kernel's parameters.
__device__ __forceinline__ void prefetch_tensor_map(const FmhaTensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// What L2 should do with the lines of a copy.
__device__ __forceinline__ uint64_t policy_evict_first() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ uint64_t policy_evict_last() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Copies the box at (x, y, z) to `destination` and counts its bytes on `barrier`. Elements outside the tensor arrive as
// zero and count as well, so the barrier always expects the whole box.
__device__ __forceinline__ void tma_load_3d(uint32_t destination, const FmhaTensorMap& map, uint32_t barrier, int32_t x,
                                            int32_t y, int32_t z, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(policy)
        : "memory");
}

// The same of a tensor of four or five dimensions.
__device__ __forceinline__ void tma_load_4d(uint32_t destination, const FmhaTensorMap& map, uint32_t barrier, int32_t x,
                                            int32_t y, int32_t z, int32_t w, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void tma_load_5d(uint32_t destination, const FmhaTensorMap& map, uint32_t barrier, int32_t x,
                                            int32_t y, int32_t z, int32_t w, int32_t u, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(u), "l"(policy)
        : "memory");
}

// Copies the boxes of one row each at (x, rows[i]) to consecutive rows of `destination`, likewise.
__device__ __forceinline__ void tma_gather4(uint32_t destination, const FmhaTensorMap& map, uint32_t barrier, int32_t x,
                                            const int32_t (&rows)[4], uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(x), "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "l"(policy)
        : "memory");
}

}  // namespace fmha::ptx
