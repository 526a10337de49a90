// Warp 4: one lane issues S_j = Q K_j^T and O += P_j V_j.
#pragma once

#include <stdint.h>

#include "common/ptx/mbarrier.cuh"
#include "common/work.cuh"
#include "ptx/tcgen05.cuh"
#include "shared_map.cuh"

namespace fmha {

template <class Traits>
__device__ __forceinline__ void multiply(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, bool accumulate) {
    if constexpr (Traits::kWeightStationary) {
        ptx::mma_ws_f16_smem(d, a, b, instruction, accumulate);
    } else {
        ptx::mma_f16_smem(d, a, b, instruction, accumulate);
    }
}

template <class Traits>
__device__ __forceinline__ void multiply_tmem(uint32_t d, uint32_t a, uint64_t b, uint32_t instruction,
                                              bool accumulate) {
    if constexpr (Traits::kWeightStationary) {
        ptx::mma_ws_f16_tmem(d, a, b, instruction, accumulate);
    } else {
        ptx::mma_f16_tmem(d, a, b, instruction, accumulate);
    }
}

// S_j = Q K_j^T over part `part` of head_dim, which adds to those before it.
template <class Traits>
__device__ __forceinline__ void issue_scores(SharedMap<Traits> shared, uint32_t tmem, int buffer, int slot, int part) {
    const uint32_t score = tmem + Traits::kTmemScore + buffer * Traits::kScoreColumns;
    const uint64_t query = smem_descriptor(shared.query(), 0, Traits::kKMajorStrideBytes, Swizzle::k128Bytes);
    const uint64_t key = smem_descriptor(shared.kv(slot), 0, Traits::kKMajorStrideBytes, Swizzle::k128Bytes);
#pragma unroll
    for (int k = 0; k < Traits::kOutputN / Traits::kMmaK; ++k) {
        const int step = part * (Traits::kOutputN / Traits::kMmaK) + k;
        multiply<Traits>(score, advance_descriptor(query, Traits::k_major_step(step, Traits::kRowChunkBytes)),
                         advance_descriptor(key, Traits::k_major_step(k, Traits::kKeyChunkBytes)),
                         Traits::kScoreInstruction, step > 0);
    }
}

// O += P_j V_j in the columns of part `part`; O = P_0 V_0 for the first tile, whose first MMA overwrites whatever TMEM
// held.
template <class Traits>
__device__ __forceinline__ void issue_output(SharedMap<Traits> shared, uint32_t tmem, int buffer, int slot, int part,
                                             bool first_tile) {
    const uint64_t value =
        smem_descriptor(shared.kv(slot), Traits::kMnMajorLeadingBytes, Traits::kMnMajorStrideBytes, Swizzle::k128Bytes);
    const uint32_t output = tmem + Traits::kTmemOutput + part * Traits::kPartColumns;
#pragma unroll
    for (int k = 0; k < Traits::kKeys / Traits::kMmaK; ++k) {
        const uint64_t b = advance_descriptor(value, k * Traits::kMnMajorStepBytes);
        const bool accumulate = k > 0 || !first_tile;
        if constexpr (Traits::kPInShared) {
            const uint64_t probability =
                smem_descriptor(shared.probability(buffer), 0, Traits::kKMajorStrideBytes, Swizzle::k128Bytes);
            multiply<Traits>(output, advance_descriptor(probability, Traits::k_major_step(k, Traits::kRowChunkBytes)),
                             b, Traits::kOutputInstruction, accumulate);
        } else {
            const uint32_t probability = tmem + Traits::kTmemProbability + buffer * Traits::kProbabilityColumns;
            multiply_tmem<Traits>(output, probability + k * Traits::kMmaK / 2, b, Traits::kOutputInstruction,
                                  accumulate);
        }
    }
}

// Gives a slot back, but only one that is filled again: an arrival nobody waits for could come after the CTA has gone.
template <class Traits>
__device__ __forceinline__ void release(SharedMap<Traits> shared, const RingOrder& order, int use, int part) {
    if (use + Traits::kStages < order.count()) {
        ptx::mma_commit(shared.kv_empty(ring_turn<Traits>(use, part).slot));
    }
}

// Waits for K_j, issues S_j and commits it.
template <class Traits>
__device__ __forceinline__ void score_step(SharedMap<Traits> shared, uint32_t tmem, const RingOrder& order, int j) {
    const int buffer = Turn<Traits::kBuffers>(j).slot;
#pragma unroll
    for (int part = 0; part < Traits::kOutputParts; ++part) {
        const auto ring = ring_turn<Traits>(order.key(j), part);
        ptx::mbarrier_wait(shared.kv_full(ring.slot), ring.parity);
        ptx::tcgen05_fence_after_thread_sync();
        issue_scores<Traits>(shared, tmem, buffer, ring.slot, part);
        if (part + 1 == Traits::kOutputParts) {
            ptx::mma_commit(shared.score_full(buffer));
        }
        if (!order.shared_kv) {
            release<Traits>(shared, order, order.key(j), part);
        }
    }
}

// Waits for P_j (and the rescaled O) and V_j, issues O += P_j V_j and commits it.
template <class Traits>
__device__ __forceinline__ void output_step(SharedMap<Traits> shared, uint32_t tmem, const RingOrder& order, int j) {
    const Turn<Traits::kBuffers> turn(j);
#pragma unroll
    for (int part = 0; part < Traits::kOutputParts; ++part) {
        const auto ring = ring_turn<Traits>(order.value(j), part);
        if (!order.shared_kv) {  // else it is K_j, which has been waited for
            ptx::mbarrier_wait(shared.kv_full(ring.slot), ring.parity);
        }
        if (part == 0) {
            ptx::mbarrier_wait(shared.probability_full(turn.slot), turn.parity);
        }
        ptx::tcgen05_fence_after_thread_sync();
        issue_output<Traits>(shared, tmem, turn.slot, ring.slot, part, j == 0);
        if (part + 1 == Traits::kOutputParts) {
            ptx::mma_commit(shared.output_full());
        }
        release<Traits>(shared, order, order.value(j), part);
    }
}

template <class Traits>
__device__ __forceinline__ void mma_role(const FmhaParams& params, SharedMap<Traits> shared, uint32_t tmem, int tiles) {
    const RingOrder order{tiles, (params.flags & kFmhaSharedKv) != 0};
    // Where V is K and there are two slots, K_{j+1} comes where V_{j-1} was. Then S_{j+1} is not worth the wait of P_j
    // V_j for it, which gives the next slot back.
    const bool ahead = Traits::kStages > 2 || !order.shared_kv;
    ptx::mbarrier_wait(shared.query_full(), 0);
    score_step<Traits>(shared, tmem, order, 0);
#pragma unroll 1
    for (int j = 0; j < tiles; ++j) {
        // S_{j+1} goes where S_{j-1} was: the softmax finished reading that before it arrived for P_{j-1}, on which the
        // previous round waited.
        if (ahead && j + 1 < tiles) {
            score_step<Traits>(shared, tmem, order, j + 1);
        }
        output_step<Traits>(shared, tmem, order, j);
        if (!ahead && j + 1 < tiles) {
            score_step<Traits>(shared, tmem, order, j + 1);
        }
    }
}

}  // namespace fmha
