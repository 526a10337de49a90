// Warp 4 of the leader: one lane issues both products for both CTAs, cta_group::2. The other CTA's has nothing to do.
//
// Scores run two tiles ahead of the output, from one row tile into the next:
//   S0 S1 | O0 S2 | O1 S3 | ... | O(n-2) S0' | O(n-1) S1' | ...
#pragma once

#include <stdint.h>

#include "common/ptx/mbarrier.cuh"
#include "sm100/pair/shared.cuh"
#include "sm100/pair/tiles.cuh"
#include "sm100/ptx/tcgen05.cuh"
#include "sm100/ptx/tcgen05_pair.cuh"
#include "sm100/ptx/tcgen05_steps.cuh"

namespace fmha {

template <class Traits>
struct PairMma {
    PairShared<Traits> shared;
    uint32_t tmem;
    int use = 0;  // of the ring, as the TMA warps count
    int scores = 0, outputs = 0;  // tiles whose S, and whose O, were issued
    uint32_t queries = 0;         // row tiles whose scores were begun

    // S = Q K^T over part `part` of head_dim, which adds to those before it.
    __device__ void issue_scores(int slot, int part) {
        constexpr uint32_t kStep = Traits::kKMajorStepBytes / 16, kUpper = upper_word(0, Traits::kKMajorStrideBytes);
        constexpr int kChunks = Traits::kOutputN / Traits::kChunkElements;
        const uint32_t score = tmem + Traits::kTmemScore + scores % Traits::kBuffers * Traits::kScoreColumns;
        const uint32_t query = (shared.query() + part * kChunks * Traits::kRowChunkBytes) >> 4;
        const uint32_t key = shared.kv(slot) >> 4;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            uint32_t a[4], b[4];
            ptx::places(a, query + chunk * (Traits::kRowChunkBytes / 16), kStep);
            ptx::places(b, key + chunk * (Traits::kKeyChunkBytes / 16), kStep);
            ptx::mma_pair_f16_smem_4(score, a, kUpper, b, kUpper, Traits::kScoreInstruction, part > 0 || chunk > 0);
        }
    }

    // O += P V in the columns of part `part`, or O = P V for the first tile of keys.
    __device__ void issue_output(int slot, int part, bool first) {
        constexpr uint32_t kRowStep = Traits::kKMajorStepBytes / 16, kStep = Traits::kMnMajorStepBytes / 16;
        constexpr uint32_t kRowUpper = upper_word(0, Traits::kKMajorStrideBytes);
        constexpr uint32_t kLeading = Traits::kMnMajorLeadingBytes / 16 << 16;  // in the lower word
        constexpr uint32_t kUpper = upper_word(Traits::kMnMajorLeadingBytes, Traits::kMnMajorStrideBytes);
        const uint32_t output = tmem + Traits::kTmemOutput + part * Traits::kPartColumns;
        const uint32_t probability = shared.probability() >> 4;
        const uint32_t value = kLeading | shared.kv(slot) >> 4;
#pragma unroll
        for (int key = 0; key < Traits::kKeys; key += 4 * Traits::kMmaK) {
            uint32_t a[4], b[4];
            ptx::places(a, probability + key / Traits::kChunkElements * (Traits::kRowChunkBytes / 16), kRowStep);
            ptx::places(b, value + key / Traits::kMmaK * kStep, kStep);
            ptx::mma_pair_f16_smem_4(output, a, kRowUpper, b, kUpper, Traits::kOutputInstruction, key > 0 || !first);
        }
    }

    // Waits for the next part.
    __device__ int wait_for_part() {
        const Turn<Traits::kSlots> turn(use++);
        ptx::mbarrier_wait(shared.kv_full(turn.slot), turn.parity);
        ptx::tcgen05_fence_after_thread_sync();
        return turn.slot;
    }

    // The scores of the next tile. They go where those of two tiles before were, which the softmax had read before it
    // arrived for P.
    __device__ void score_step(bool first, bool last) {
        if (first) {
            ptx::mbarrier_wait(shared.query_full(), queries++ & 1);
        }
        for (int part = 0; part < Traits::kParts; ++part) {
            const int slot = wait_for_part();
            issue_scores(slot, part);
            ptx::mma_pair_commit(shared.kv_empty(slot));
        }
        ptx::mma_pair_commit(shared.score_full(scores % Traits::kBuffers));
        if (last) {
            ptx::mma_pair_commit(shared.query_empty());
        }
        scores += 1;
    }

    // The output of the next tile, once P is stored and O is rescaled, or of the row tile before is stored.
    __device__ void output_step(bool first) {
        for (int part = 0; part < Traits::kParts; ++part) {
            const int slot = wait_for_part();
            if (part == 0) {
                ptx::mbarrier_wait(shared.probability_full(), outputs & 1);
                ptx::tcgen05_fence_after_thread_sync();
            }
            issue_output(slot, part, first);
            ptx::mma_pair_commit(shared.kv_empty(slot));
        }
        ptx::mma_pair_commit(shared.output_full());
        outputs += 1;
    }
};

template <class Traits>
__device__ __forceinline__ void pair_mma_role(const FmhaParams& params, PairShared<Traits> shared, uint32_t tmem) {
    PairMma<Traits> mma{shared, tmem};
    KeyTiles<Traits> scores, outputs;
    bool more = true;
#pragma unroll 1
    for (int ahead = 0; ahead < Traits::kBuffers; ++ahead) {
        more = more && scores.next(params);
        if (more) {
            mma.score_step(scores.first(), scores.last());
        }
    }
#pragma unroll 1
    while (outputs.next(params)) {
        mma.output_step(outputs.first());
        more = more && scores.next(params);
        if (more) {
            mma.score_step(scores.first(), scores.last());
        }
    }
}

}  // namespace fmha
