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
    RingPlace<Traits::kSlots> ring{};  // as the TMA warps go through it
    int scores = 0, outputs = 0;       // tiles whose S, and whose O, were issued
    uint32_t queries = 0;              // row tiles whose scores were begun

    // S = Q K^T over part `part` of head_dim, which adds to those before it.
    __device__ void issue_scores(int part) {
        constexpr uint32_t kStep = Traits::kKMajorStepBytes / 16, kUpper = upper_word(0, Traits::kKMajorStrideBytes);
        const uint32_t score = tmem + Traits::kTmemScore + scores % Traits::kBuffers * Traits::kScoreColumns;
        const uint32_t query = (shared.query() + part * Traits::kPartChunks * Traits::kRowChunkBytes) >> 4;
        const uint32_t key = shared.kv(ring.slot) >> 4;
#pragma unroll
        for (int chunk = 0; chunk < Traits::kPartChunks; ++chunk) {
            uint32_t a[4], b[4];
            ptx::places(a, query + chunk * (Traits::kRowChunkBytes / 16), kStep);
            ptx::places(b, key + chunk * (Traits::kKeyChunkBytes / 16), kStep);
            ptx::mma_pair_f16_smem_4(score, a, kUpper, b, kUpper, Traits::kScoreInstruction, part > 0 || chunk > 0);
        }
    }

    // O += P V of half `half` of the keys, or O = P V for the first half of the first tile.
    __device__ void issue_output(int accumulator, int half, bool first) {
        constexpr uint32_t kRowStep = Traits::kKMajorStepBytes / 16, kStep = Traits::kMnMajorStepBytes / 16;
        constexpr uint32_t kRowUpper = upper_word(0, Traits::kKMajorStrideBytes);
        constexpr uint32_t kLeading = Traits::kMnMajorLeadingBytes / 16 << 16;  // in the lower word
        constexpr uint32_t kUpper = upper_word(Traits::kMnMajorLeadingBytes, Traits::kMnMajorStrideBytes);
        const uint32_t output = tmem + Traits::kTmemOutput + accumulator * Traits::kPartColumns;
        static_assert(Traits::kCtaKeys == 4 * Traits::kMmaK && Traits::kCtaKeys == Traits::kChunkElements);
        uint32_t a[4], b[4];
        ptx::places(a, (shared.probability() + half * Traits::kRowChunkBytes) >> 4, kRowStep);
        ptx::places(b, kLeading | shared.kv(ring.slot) >> 4, kStep);
        ptx::mma_pair_f16_smem_4(output, a, kRowUpper, b, kUpper, Traits::kOutputInstruction, half > 0 || !first);
    }

    // Waits for the next part,
    __device__ void wait_for_part() {
        ptx::mbarrier_wait(shared.kv_full(ring.slot), ring.parity);
        ptx::tcgen05_fence_after_thread_sync();
    }

    // and gives its slot back.
    __device__ void release_part() {
        ptx::mma_pair_commit(shared.kv_empty(ring.slot));
        ring.advance();
    }

    // The scores of the next tile. They go where those of two tiles before were, which the softmax had read before it
    // arrived for P.
    __device__ void score_step(bool first, bool last) {
        queries += first;
#pragma unroll
        for (int part = 0; part < Traits::kParts; ++part) {
            if (first) {
                ptx::mbarrier_wait(shared.query_full(part), (queries - 1) & 1);
            }
            wait_for_part();
            issue_scores(part);
            release_part();
            if (last) {
                ptx::mma_pair_commit(shared.query_empty(part));
            }
        }
        ptx::mma_pair_commit(shared.score_full(scores % Traits::kBuffers));
        scores += 1;
    }

    // The output of the next tile, once P is stored and O is rescaled, or of the row tile before is stored. What the
    // last one of a row tile leaves in the first accumulator is stored beside the products of the second.
    __device__ void output_step(bool first, bool last) {
#pragma unroll
        for (int part = 0; part < Traits::kParts; ++part) {
            wait_for_part();
            if (part == 0) {
                ptx::mbarrier_wait(shared.probability_full(), outputs & 1);
                ptx::tcgen05_fence_after_thread_sync();
            }
            issue_output(part / Traits::kCtas, part % Traits::kCtas, first);
            release_part();
            if (Traits::kOutputs > 1 && part + 1 == Traits::kCtas && last) {
                ptx::mma_pair_commit(shared.first_output_full());
            }
        }
        ptx::mma_pair_commit(shared.output_full());
        outputs += 1;
    }
};

template <class Traits>
__device__ __forceinline__ void pair_mma_role(const FmhaParams& params, PairShared<Traits> shared, uint32_t tmem,
                                              const RowTiles<Traits>& row_tiles) {
    PairMma<Traits> mma{shared, tmem};
    KeyTiles<Traits> scores{row_tiles}, outputs{row_tiles};
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
        mma.output_step(outputs.first(), outputs.last());
        more = more && scores.next(params);
        if (more) {
            mma.score_step(scores.first(), scores.last());
        }
    }
}

}  // namespace fmha
