// The CTA's shared memory: addresses in the shared window, named, and the barriers' initialisation.
#pragma once

#include <stdint.h>

#include "common/ptx/mbarrier.cuh"
#include "traits.cuh"

namespace fmha {

template <class Traits>
struct SharedMap {
    uint32_t base;

    __device__ uint32_t query() const { return base + Traits::kSmemQuery; }
    __device__ uint32_t kv(int slot) const { return base + Traits::kSmemKv + slot * Traits::kPartBytes; }
    __device__ uint32_t probability(int buffer) const {
        return base + Traits::kSmemProbability + buffer * Traits::kProbabilityBytes;
    }
    __device__ uint32_t exchange(int buffer, int thread) const {
        return base + Traits::kSmemExchange + (buffer * Traits::kSoftmaxThreads + thread) * 4;
    }
    // Vector `vector` of thread `thread`'s share of P, behind two buffers of maxima; threads are consecutive: no bank
    // conflict.
    __device__ uint32_t exchange_vector(int vector, int thread) const {
        return exchange(Traits::kBuffers, 0) + (vector * Traits::kSoftmaxThreads + thread) * 16;
    }
    __device__ uint32_t tmem_address() const { return base + Traits::kSmemTmemAddress; }

    __device__ uint32_t query_full() const { return barrier(Traits::kQueryFull); }
    __device__ uint32_t kv_full(int slot) const { return barrier(Traits::kKvFull + slot); }
    __device__ uint32_t kv_empty(int slot) const { return barrier(Traits::kKvEmpty + slot); }
    __device__ uint32_t score_full(int buffer) const { return barrier(Traits::kScoreFull + buffer); }
    __device__ uint32_t probability_full(int buffer) const { return barrier(Traits::kProbabilityFull + buffer); }
    __device__ uint32_t output_full() const { return barrier(Traits::kOutputFull); }
    __device__ uint32_t kv_tail() const { return barrier(Traits::kKvTail); }

    __device__ uint32_t barrier(int index) const { return base + Traits::kSmemBarriers + 8 * index; }
};

// Use n of a ring of `Size`: the slot, and the parity of the slot's phase that this use completes.
template <int Size>
struct Turn {
    static_assert((Size & (Size - 1)) == 0);
    int slot;
    uint32_t parity;

    __device__ explicit Turn(int n) : slot(n % unsigned(Size)), parity(n / unsigned(Size) & 1) {}
};

// The slot, and its parity, of part `part` of the tile that is use `use` of the ring.
template <class Traits>
__device__ __forceinline__ Turn<Traits::kSlots> ring_turn(int use, int part) {
    return Turn<Traits::kSlots>(use * Traits::kOutputParts + part);
}

// One arrival a barrier, except probability_full, where every softmax thread arrives.
template <class Traits>
__device__ __forceinline__ void init_barriers(SharedMap<Traits> shared) {
    ptx::mbarrier_init(shared.query_full(), 1);
    for (int i = 0; i < Traits::kSlots; ++i) {
        ptx::mbarrier_init(shared.kv_full(i), 1);
        ptx::mbarrier_init(shared.kv_empty(i), 1);
    }
    for (int i = 0; i < Traits::kBuffers; ++i) {
        ptx::mbarrier_init(shared.score_full(i), 1);
        ptx::mbarrier_init(shared.probability_full(i), Traits::kSoftmaxThreads);
    }
    ptx::mbarrier_init(shared.kv_tail(), 1);
    ptx::mbarrier_init(shared.output_full(), 1);
    ptx::fence_proxy_async();
}

}  // namespace fmha
