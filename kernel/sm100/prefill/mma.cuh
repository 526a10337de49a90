// Warp 12: one lane issues both products of both query tiles.
//
// Scores run one tile of keys ahead of outputs, from one row tile into the next:
//   S_A0 S_B0 | S_A1 O_A0 S_B1 O_B0 | S_A2 O_A1 S_B2 O_B1 | ... | O_A(n-1) S_A0' O_B(n-1) S_B0' | ...
// The first scores of the next row tile wait for its Q, and so go behind the outputs.
#pragma once

#include <stdint.h>

#include "common/ptx/mbarrier.cuh"
#include "common/work.cuh"
#include "sm100/prefill/order.cuh"
#include "sm100/prefill/shared.cuh"
#include "sm100/ptx/tcgen05.cuh"

namespace fmha {

// S = Q K^T of query tile `tile`, over the whole head_dim.
template <class Traits>
__device__ __forceinline__ void issue_scores(PrefillShared<Traits> shared, uint32_t tmem, int tile, int slot) {
    const uint32_t score = tmem + Traits::kTmemScore + tile % Traits::kScoreBuffers * Traits::kScoreColumns;
    const uint64_t query = smem_descriptor(shared.query() + tile * Traits::kQueryTileBytes, 0,
                                           Traits::kKMajorStrideBytes, Swizzle::k128Bytes);
    const uint64_t key = smem_descriptor(shared.kv(slot), 0, Traits::kKMajorStrideBytes, Swizzle::k128Bytes);
#pragma unroll
    for (int k = 0; k < Traits::kHeadDim / Traits::kMmaK; ++k) {
        ptx::mma_f16_smem(score, advance_descriptor(query, Traits::k_major_step(k, Traits::kRowChunkBytes)),
                          advance_descriptor(key, Traits::k_major_step(k, Traits::kKeyChunkBytes)),
                          Traits::kScoreInstruction, k > 0);
    }
}

// O += P V, or O = P V for the first tile of keys, whose first MMA overwrites whatever TMEM held.
template <class Traits>
__device__ __forceinline__ void issue_output(PrefillShared<Traits> shared, uint32_t tmem, int tile, int slot,
                                             bool first) {
    const uint32_t output = tmem + Traits::kTmemOutput + tile * Traits::kHeadDim;
    const uint32_t probability = tmem + Traits::kTmemProbability + tile * Traits::kProbabilityColumns;
    const uint64_t value =
        smem_descriptor(shared.kv(slot), Traits::kMnMajorLeadingBytes, Traits::kMnMajorStrideBytes, Swizzle::k128Bytes);
#pragma unroll
    for (int k = 0; k < Traits::kKeys / Traits::kMmaK; ++k) {
        ptx::mma_f16_tmem(output, probability + k * Traits::kMmaK / 2,
                          advance_descriptor(value, k * Traits::kMnMajorStepBytes), Traits::kOutputInstruction,
                          k > 0 || !first);
    }
}

// The scores of tile `number` of the CTA's tiles of keys, whose K is use `use` of the ring. B comes behind A: it finds
// K there, and is the last to read it.
template <class Traits>
__device__ __forceinline__ void score_step(PrefillShared<Traits> shared, uint32_t tmem, int tile, int number, int use) {
    const Turn<Traits::kStages> ring(use);
    if (tile == 0) {
        ptx::mbarrier_wait(shared.kv_full(ring.slot), ring.parity);
    }
    // The buffer's last scores, the tile's own or the other one's, are in registers.
    const int last_tile = Traits::kScoreBuffers == 2 ? tile : 1 - tile;
    const int last_number = last_tile < tile ? number : number - 1;
    if (last_number >= 0) {
        ptx::mbarrier_wait(shared.score_empty(last_tile), last_number & 1);
    }
    ptx::tcgen05_fence_after_thread_sync();
    issue_scores<Traits>(shared, tmem, tile, ring.slot);
    ptx::mma_commit(shared.score_full(tile));
    if (tile == 1) {
        ptx::mma_commit(shared.kv_empty(ring.slot));
    }
}

// The output of the same tile, whose V is use `use`, once P is stored and O is rescaled.
template <class Traits>
__device__ __forceinline__ void output_step(PrefillShared<Traits> shared, uint32_t tmem, int tile, int number, int use,
                                            bool first) {
    const Turn<Traits::kStages> ring(use);
    if (tile == 0) {
        ptx::mbarrier_wait(shared.kv_full(ring.slot), ring.parity);
    }
    ptx::mbarrier_wait(shared.probability_full(tile), number & 1);
    ptx::tcgen05_fence_after_thread_sync();
    issue_output<Traits>(shared, tmem, tile, ring.slot, first);
    ptx::mma_commit(shared.output_full(tile));
    if (tile == 1) {
        ptx::mma_commit(shared.kv_empty(ring.slot));
    }
}

template <class Traits>
__device__ __forceinline__ void prefill_mma_role(const FmhaParams& params, PrefillShared<Traits> shared,
                                                 uint32_t tmem) {
    RowTiles<Traits> row_tiles;
    Work work;
    int number = 0;        // tiles of keys before this row tile; the ring has two uses for each
    uint32_t queries = 0;  // row tiles whose Q has been waited for
    bool more = row_tiles.next_with_keys(params, work);
    if (!more) {
        return;
    }
    ptx::mbarrier_wait(shared.query_full(), queries++ & 1);
#pragma unroll
    for (int tile = 0; tile < Traits::kQueryTiles; ++tile) {
        score_step<Traits>(shared, tmem, tile, 0, 0);
    }
    while (more) {
        const RingOrder order{work.tiles, false};
        more = row_tiles.next_with_keys(params, work);
#pragma unroll 1
        for (int j = 0; j + 1 < order.tiles; ++j) {
#pragma unroll
            for (int tile = 0; tile < Traits::kQueryTiles; ++tile) {
                score_step<Traits>(shared, tmem, tile, number + j + 1, 2 * number + order.key(j + 1));
                output_step<Traits>(shared, tmem, tile, number + j, 2 * number + order.value(j), j == 0);
            }
        }
        ptx::mma_commit(shared.query_empty());
        const int last = number + order.tiles - 1;
#pragma unroll
        for (int tile = 0; tile < Traits::kQueryTiles; ++tile) {
            output_step<Traits>(shared, tmem, tile, last, 2 * last + 1, order.tiles == 1);
            if (more && tile == 0) {
                ptx::mbarrier_wait(shared.query_full(), queries++ & 1);
            }
            if (more) {
                score_step<Traits>(shared, tmem, tile, last + 1, 2 * last + 2);
            }
        }
        number = last + 1;
    }
}

}  // namespace fmha
