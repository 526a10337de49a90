// TMA into the CTA's own shared memory, whose bytes are counted by a barrier of either CTA of its pair.
#pragma once

#include <stdint.h>

#include "common/ptx/tma.cuh"
#include "fmha_params.h"

namespace fmha::ptx {

// As tma_load_3d and its like; `barrier` is an address that map_to_cta returned.
__device__ __forceinline__ void tma_pair_load_3d(uint32_t destination, const FmhaTensorMap& map, uint32_t barrier,
                                                 int32_t x, int32_t y, int32_t z, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void tma_pair_load_4d(uint32_t destination, const FmhaTensorMap& map, uint32_t barrier,
                                                 int32_t x, int32_t y, int32_t z, int32_t w, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void tma_pair_load_5d(uint32_t destination, const FmhaTensorMap& map, uint32_t barrier,
                                                 int32_t x, int32_t y, int32_t z, int32_t w, int32_t u,
                                                 uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(destination),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(u), "l"(policy)
        : "memory");
}

}  // namespace fmha::ptx
