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
    __device__ uint32_t output_empty(int tile) const { return this->barrier(Traits::kOutputEmpty + tile); }
    __device__ uint32_t factor_full(int tile) const { return this->barrier(Traits::kFactorFull + tile); }
    __device__ uint32_t factor(int tile, int row) const {
        return this->base + Traits::kSmemFactor + (tile * Traits::kTileRows + row) * 4;
    }
};

// One arrival a barrier, but where the MMA of both query tiles or every thread of a warpgroup arrives.
template <class Traits>
__device__ __forceinline__ void init_barriers(PrefillShared<Traits> shared) {
    ptx::mbarrier_init(shared.query_full(), 1);
    ptx::mbarrier_init(shared.query_empty(), Traits::kQueryTiles);
    for (int i = 0; i < Traits::kStages; ++i) {
        ptx::mbarrier_init(shared.kv_full(i), 1);
        ptx::mbarrier_init(shared.kv_empty(i), Traits::kQueryTiles);
    }
    for (int tile = 0; tile < Traits::kQueryTiles; ++tile) {
        ptx::mbarrier_init(shared.score_full(tile), 1);
        ptx::mbarrier_init(shared.score_empty(tile), Traits::kTileRows);
        ptx::mbarrier_init(shared.probability_full(tile), Traits::kTileRows);
        ptx::mbarrier_init(shared.output_full(tile), 1);
        ptx::mbarrier_init(shared.output_empty(tile), Traits::kTileRows);
        ptx::mbarrier_init(shared.factor_full(tile), Traits::kTileRows);
    }
    ptx::fence_proxy_async();
}

}  // namespace fmha
