// The CTA's shared memory beyond what SharedMap names, and the initialisation of the barriers.
#pragma once

#include <stdint.h>

#include "common/ptx/mbarrier.cuh"
#include "sm100/prefill/traits.cuh"
#include "sm100/shared_map.cuh"

namespace fmha {

template <class Traits>
struct PrefillShared : SharedMap<Traits> {
    __device__ uint32_t query_empty() const { return this->barrier(Traits::kQueryEmpty); }
    __device__ uint32_t score_empty(int tile) const { return this->barrier(Traits::kScoreEmpty + tile); }
    __device__ uint32_t output_full(int tile) const { return this->barrier(Traits::kOutputFull + tile); }
    __device__ uint32_t factor_full(int tile, int slot) const {
        return this->barrier(Traits::kFactorFull + tile * Traits::kFactorSlots + slot);
    }
    __device__ uint32_t factor(int tile, int slot, int row) const {
        return this->base + Traits::kSmemFactor + ((tile * Traits::kFactorSlots + slot) * Traits::kTileRows + row) * 4;
    }
};

// One arrival a barrier, but where every thread of a warpgroup arrives, or of two.
template <class Traits>
__device__ __forceinline__ void init_barriers(PrefillShared<Traits> shared) {
    ptx::mbarrier_init(shared.query_full(), 1);
    ptx::mbarrier_init(shared.query_empty(), 1);
    for (int i = 0; i < Traits::kStages; ++i) {
        ptx::mbarrier_init(shared.kv_full(i), 1);
        ptx::mbarrier_init(shared.kv_empty(i), 1);
    }
    for (int tile = 0; tile < Traits::kQueryTiles; ++tile) {
        ptx::mbarrier_init(shared.score_full(tile), 1);
        ptx::mbarrier_init(shared.score_empty(tile), Traits::kTileRows);
        ptx::mbarrier_init(shared.probability_full(tile), 2 * Traits::kTileRows);
        ptx::mbarrier_init(shared.output_full(tile), 1);
        for (int slot = 0; slot < Traits::kFactorSlots; ++slot) {
            ptx::mbarrier_init(shared.factor_full(tile, slot), Traits::kTileRows);
        }
    }
    ptx::fence_proxy_async();
}

}  // namespace fmha
