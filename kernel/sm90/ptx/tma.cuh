// TMA forms that only this kernel needs: without a cache policy, and single rows.
#pragma once

#include <stdint.h>

#include "fmha_params.h"

namespace fmha::ptx {

// Copies the box at (x, y, z) to `destination` and counts its bytes on `barrier`; what is outside the tensor is zero.
__device__ __forceinline__ void tma_tile_3d(uint32_t destination, const FmhaTensorMap& map, uint32_t barrier, int32_t x,
                                            int32_t y, int32_t z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// The same of a tensor of four or five dimensions.
__device__ __forceinline__ void tma_tile_4d(uint32_t destination, const FmhaTensorMap& map, uint32_t barrier, int32_t x,
                                            int32_t y, int32_t z, int32_t w) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
}

__device__ __forceinline__ void tma_tile_5d(uint32_t destination, const FmhaTensorMap& map, uint32_t barrier, int32_t x,
                                            int32_t y, int32_t z, int32_t w, int32_t u) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(u)
        : "memory");
}

__device__ __forceinline__ void prefetch_tile_5d(const FmhaTensorMap& map, int32_t x, int32_t y, int32_t z, int32_t w,
                                                 int32_t u) {
    asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" ::"l"(&map), "r"(x),
                 "r"(y), "r"(z), "r"(w), "r"(u)
                 : "memory");
}

// The box at (x, y, z) into the L2.
__device__ __forceinline__ void prefetch_tile_3d(const FmhaTensorMap& map, int32_t x, int32_t y, int32_t z) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(&map), "r"(x), "r"(y),
                 "r"(z)
                 : "memory");
}

__device__ __forceinline__ void tma_load_2d(uint32_t destination, const FmhaTensorMap& map, uint32_t barrier, int32_t x,
                                            int32_t y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

}  // namespace fmha::ptx
