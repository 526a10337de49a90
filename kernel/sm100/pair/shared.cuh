// The barriers of the pair kernel beyond what SharedMap names, and their initialisation.
#pragma once

#include <stdint.h>

#include "common/ptx/cluster.cuh"
#include "common/ptx/mbarrier.cuh"
#include "sm100/pair/traits.cuh"
#include "sm100/shared_map.cuh"

namespace fmha {

// Both CTAs of a pair have all barriers at the same place. The first CTA's, the leader's, say what its MMA waits for.
template <class Traits>
struct PairShared : SharedMap<Traits> {
    __device__ uint32_t query_full(int part) const { return this->barrier(Traits::kQueryFull + part); }
    __device__ uint32_t query_empty(int part) const { return this->barrier(Traits::kQueryEmpty + part); }
    __device__ uint32_t probability() const { return this->base + Traits::kSmemProbability; }
    __device__ uint32_t probability_full() const { return this->barrier(Traits::kProbabilityFull); }
    __device__ uint32_t first_output_full() const { return this->barrier(Traits::kFirstOutputFull); }
};

// The leader's barrier that lies where `barrier` does.
__device__ __forceinline__ uint32_t of_leader(uint32_t barrier) { return ptx::map_to_cta(barrier, 0); }

// One arrival a barrier, but where every softmax warp of both CTAs arrives.
template <class Traits>
__device__ __forceinline__ void init_barriers(PairShared<Traits> shared) {
    for (int part = 0; part < Traits::kParts; ++part) {
        ptx::mbarrier_init(shared.query_full(part), 1);
        ptx::mbarrier_init(shared.query_empty(part), 1);
    }
    for (int i = 0; i < Traits::kSlots; ++i) {
        ptx::mbarrier_init(shared.kv_full(i), 1);
        ptx::mbarrier_init(shared.kv_empty(i), 1);
    }
    for (int i = 0; i < Traits::kBuffers; ++i) {
        ptx::mbarrier_init(shared.score_full(i), 1);
    }
    ptx::mbarrier_init(shared.probability_full(), Traits::kCtas * Traits::kSoftmaxThreads / 32);
    ptx::mbarrier_init(shared.output_full(), 1);
    ptx::mbarrier_init(shared.first_output_full(), 1);
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();
}

}  // namespace fmha
