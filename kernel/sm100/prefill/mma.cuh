// Warps 12 and 13: one lane of each issues both products of a query tile, A's or B's.
//
// Scores run one tile of keys ahead of the output, from one row tile into the next:
//   S0 | S1 O0 | S2 O1 | ... | S(n-1) O(n-2) | O(n-1) S0' | ...
// The first scores of the next row tile wait for its Q, and so go behind the output. What A and B have in common, Q, K
// and V, is given back by both. The tensor core takes their products as they come.
#pragma once

#include <stdint.h>

#include "common/ptx/mbarrier.cuh"
#include "common/work.cuh"
#include "sm100/prefill/row_tiles.cuh"
#include "sm100/prefill/shared.cuh"
#include "sm100/ptx/tcgen05.cuh"
#include "sm100/ptx/tcgen05_steps.cuh"

namespace fmha {

// S = Q K^T of query tile `tile`, over the whole head_dim.
template <class Traits>
__device__ __forceinline__ void issue_scores(PrefillShared<Traits> shared, uint32_t tmem, int tile, int slot) {
    constexpr uint32_t kStep = Traits::kKMajorStepBytes / 16, kUpper = upper_word(0, Traits::kKMajorStrideBytes);
    const uint32_t score = tmem + Traits::kTmemScore;
    const uint32_t query = (shared.query() + tile * Traits::kQueryTileBytes) >> 4;
    const uint32_t key = (shared.kv(0) >> 4) + slot * (Traits::kKvTileBytes >> 4);
#pragma unroll
    for (int chunk = 0; chunk < Traits::kHeadChunks; ++chunk) {
        uint32_t a[4], b[4];
        ptx::places(a, query + chunk * (Traits::kRowChunkBytes / 16), kStep);
        ptx::places(b, key + chunk * (Traits::kKeyChunkBytes / 16), kStep);
        ptx::mma_f16_smem_4(score, a, kUpper, b, kUpper, Traits::kScoreInstruction, chunk > 0);
    }
}

// O += P V, or O = P V for the first tile of keys, whose first MMA overwrites whatever TMEM held.
template <class Traits>
__device__ __forceinline__ void issue_output(PrefillShared<Traits> shared, uint32_t tmem, int tile, int slot,
                                             bool first) {
    constexpr uint32_t kStep = Traits::kMnMajorStepBytes / 16;
    constexpr uint32_t kLeading = Traits::kMnMajorLeadingBytes / 16 << 16;  // in the lower word
    constexpr uint32_t kUpper = upper_word(Traits::kMnMajorLeadingBytes, Traits::kMnMajorStrideBytes);
    const uint32_t output = tmem + Traits::kTmemOutput + tile * Traits::kHeadDim;
    const uint32_t probability = tmem + Traits::kTmemProbability + tile * Traits::kProbabilityColumns;
    const uint32_t value = (kLeading | shared.kv(0) >> 4) + slot * (Traits::kKvTileBytes >> 4);
#pragma unroll
    for (int key = 0; key < Traits::kKeys; key += 4 * Traits::kMmaK) {
        uint32_t a[4], b[4];
        ptx::places(a, probability + key / 2, Traits::kMmaK / 2);
        ptx::places(b, value + key / Traits::kMmaK * kStep, kStep);
        ptx::mma_f16_tmem_4(output, a, b, kUpper, Traits::kOutputInstruction, key > 0 || !first);
    }
}

// The scores of tile `number` of the CTA's tiles of keys, whose K is use `use` of the ring.
template <class Traits>
__device__ __forceinline__ void score_step(PrefillShared<Traits> shared, uint32_t tmem, int tile, int number, int use) {
    const Turn<Traits::kStages> ring(use);
    ptx::mbarrier_wait(shared.kv_full(ring.slot), ring.parity);
    // The buffer's last scores, of the other query tile, are in registers: for B those of this tile of keys, for A
    // those of the one before.
    if (tile == 1 || number > 0) {
        ptx::mbarrier_wait(shared.score_empty(1 - tile), tile == 1 ? number & 1 : (number - 1) & 1);
    }
    ptx::tcgen05_fence_after_thread_sync();
    issue_scores<Traits>(shared, tmem, tile, ring.slot);
    ptx::mma_commit(shared.score_full(tile));
    ptx::mma_commit(shared.kv_empty(ring.slot));
}

// The output of the same tile, whose V is use `use`, once P is stored and O is rescaled, or of a row tile's first tile
// of keys may be overwritten.
template <class Traits>
__device__ __forceinline__ void output_step(PrefillShared<Traits> shared, uint32_t tmem, int tile, int number, int use,
                                            bool first, int row_tile) {
    const Turn<Traits::kStages> ring(use);
    ptx::mbarrier_wait(shared.kv_full(ring.slot), ring.parity);
    if (first && row_tile > 0) {
        ptx::mbarrier_wait(shared.output_empty(tile), (row_tile - 1) & 1);
    }
    ptx::mbarrier_wait(shared.probability_full(tile), number & 1);
    ptx::tcgen05_fence_after_thread_sync();
    issue_output<Traits>(shared, tmem, tile, ring.slot, first);
    ptx::mma_commit(shared.output_full(tile));
    ptx::mma_commit(shared.kv_empty(ring.slot));
}

template <class Traits>
__device__ __forceinline__ void prefill_mma_role(const FmhaParams& params, PrefillShared<Traits> shared, uint32_t tmem,
                                                 int tile) {
    RowTiles<Traits> row_tiles;
    Work work;
    int number = 0;    // tiles of keys before this row tile; the ring has two uses for each
    int row_tile = 0;  // of those with keys
    bool more = row_tiles.next_with_keys(params, work);
    if (!more) {
        return;
    }
    ptx::mbarrier_wait(shared.query_full(), 0);
    score_step<Traits>(shared, tmem, tile, 0, 0);
#pragma unroll 1
    while (more) {
        const int last = number + work.tiles - 1;
        more = row_tiles.next_with_keys(params, work);
        bool first = true;
#pragma unroll 1
        for (; number < last; ++number) {
            score_step<Traits>(shared, tmem, tile, number + 1, 2 * number + 1);
            output_step<Traits>(shared, tmem, tile, number, 2 * number + 2, first, row_tile);
            first = false;
        }
        ptx::mma_commit(shared.query_empty());
        output_step<Traits>(shared, tmem, tile, last, 2 * last + 1, first, row_tile);
        row_tile += 1;
        if (more) {
            ptx::mbarrier_wait(shared.query_full(), row_tile & 1);
            score_step<Traits>(shared, tmem, tile, last + 1, 2 * last + 2);
        }
        number = last + 1;
    }
}

}  // namespace fmha
