// Warps 0-3 and 4-7: the softmax of query tiles A and B, a row a thread. They leave P in TMEM, rescale O where a
// maximum grew by more than the threshold, and leave the last factor of each row to the epilogue.
#pragma once

#include <stdint.h>

#include "common/ptx/mbarrier.cuh"
#include "common/ptx/shared.cuh"
#include "common/ptx/warp.cuh"
#include "common/row_output.cuh"
#include "common/softmax.cuh"
#include "common/work.cuh"
#include "sm100/prefill/exponential.cuh"
#include "sm100/prefill/row_tiles.cuh"
#include "sm100/prefill/shared.cuh"
#include "sm100/ptx/tcgen05.cuh"

namespace fmha {

// A thread's row of one row tile.
template <class Traits>
struct QueryRow {
    int32_t index;  // among the rows of the plane
    bool stored;    // else it is computed and not stored
    KeyRange visible;
    KeyRange all_rows;  // the keys that every row of the query tile sees: a tile of keys within needs no mask

    __device__ QueryRow(const FmhaParams& params, const Work& work, int tile) {
        const int first = work.first_row + tile * Traits::kTileRows, row = threadIdx.x % Traits::kTileRows;
        const int rows = work.rows - tile * Traits::kTileRows;
        const auto visible_to = [&](int of) {
            return visible_keys(params, work.kv_len, work.query_offset, by_heads(params, of));
        };
        index = first + row;
        stored = row < rows;
        visible = visible_to(index);
        all_rows = {visible_to(first + Traits::kTileRows - 1).first, visible_to(first).end};
    }
};

// Sets what the row does not see of the tile from `key` on to -inf.
template <class Traits>
__device__ __forceinline__ void mask_keys(const QueryRow<Traits>& query, int key, float (&row)[Traits::kKeys]) {
    if (key >= query.all_rows.first && key + Traits::kKeys <= query.all_rows.end) {
        return;
    }
    if (query.visible.first > key) {
        mask_range(row, query.visible.first - key, query.visible.end - key);
        return;
    }
    const int end = query.visible.end - key;
#pragma unroll
    for (int i = 0; i < Traits::kKeys; ++i) {
        row[i] = i < end ? row[i] : -kInfinity;
    }
}

// O *= factor, each lane its own row. Loads and stores are warp-wide, so one row that grew takes its warp along.
template <class Traits>
__device__ __forceinline__ void rescale(uint32_t output, float factor) {
    constexpr int kColumns = 32;
    if (!ptx::any_lane(factor != 1.0f)) {
        return;
    }
#pragma unroll 1
    for (int column = 0; column < Traits::kHeadDim; column += kColumns) {
        float values[kColumns];
        ptx::tmem_load(values, output + column);
        uint32_t scaled[kColumns];
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
            scaled[i] = __float_as_uint(values[i] * factor);
        }
        ptx::tmem_store(output + column, scaled);
    }
}

// Tile j of the row tile's keys, `number` of the CTA's: S to P. `lane` is TMEM's of this thread.
template <class Traits>
__device__ __forceinline__ void softmax_step(const FmhaParams& params, const Work& work, PrefillShared<Traits> shared,
                                             const QueryRow<Traits>& query, uint32_t lane, int tile, RowState& state,
                                             int j, int number) {
    constexpr int kHalf = Traits::kKeys / 2;
    const float scale_log2 = params.scale * kLog2E;
    ptx::mbarrier_wait(shared.score_full(tile), number & 1);
    ptx::tcgen05_fence_after_thread_sync();
    float row[Traits::kKeys];
    ptx::tmem_load(row, lane + Traits::kTmemScore);
    ptx::tcgen05_fence_before_thread_sync();
    ptx::mbarrier_arrive(shared.score_empty(tile));

    mask_keys<Traits>(query, first_key(work, j, Traits::kKeys), row);
    const float factor = raise_anchor(state, max_of_tile(row), scale_log2);
    const uint32_t probability = lane + Traits::kTmemProbability + tile * Traits::kProbabilityColumns;
    uint64_t sum[2] = {};
    uint32_t packed[kHalf / 2];
    exponentiate<kHalf>(row, packed, scale_log2, state.anchor, sum);
    if (number > 0) {  // P goes where that of the tile before was, once the MMA has read it
        ptx::mbarrier_wait(shared.output_full(tile), (number - 1) & 1);
        ptx::tcgen05_fence_after_thread_sync();
    }
    ptx::tmem_store(probability, packed);
    if (j > 0) {
        rescale<Traits>(lane + Traits::kTmemOutput + tile * Traits::kHeadDim, factor);
    }
    exponentiate<kHalf>(row + kHalf, packed, scale_log2, state.anchor, sum);
    ptx::tmem_store(probability + kHalf / 2, packed);
    ptx::tmem_wait_store();
    ptx::tcgen05_fence_before_thread_sync();
    ptx::mbarrier_arrive(shared.probability_full(tile));
    const float2 added = ptx::unpack_f32x2(ptx::add_f32x2(sum[0], sum[1]));
    state.sum += added.x + added.y;
}

// The statistics of a row, and the factor from its O as accumulated to what is stored.
template <class Traits>
__device__ __forceinline__ float finish_row(const FmhaParams& params, const Work& work, const QueryRow<Traits>& query,
                                            const RowState& state) {
    const float shift = anchor_to_max(state, params.scale * kLog2E);
    const float max = state.max * params.scale, sum = state.sum * shift;
    if (!query.stored) {
        return 0.0f;
    }
    store_statistics(params, stored_row(params, work.plane, query.index), max, sum);
    return shift * output_factor(params, query_head(params, work.plane, query.index), max, sum);
}

template <class Traits>
__device__ __forceinline__ void prefill_softmax_role(const FmhaParams& params, PrefillShared<Traits> shared,
                                                     uint32_t tmem, int tile) {
    const uint32_t lane = tmem + (threadIdx.x / 32 % 4 * 32 << 16);
    RowTiles<Traits> row_tiles;
    Work work;
    int number = 0;    // tiles of keys before this row tile
    int row_tile = 0;  // of those with keys
#pragma unroll 1
    while (row_tiles.next(params, work)) {
        const QueryRow<Traits> query(params, work, tile);
        RowState state;
#pragma unroll 1
        for (int j = 0; j < work.tiles; ++j) {
            softmax_step<Traits>(params, work, shared, query, lane, tile, state, j, number + j);
        }
        number += work.tiles;
        const float factor = finish_row<Traits>(params, work, query, state);
        if (work.tiles > 0) {
            if (row_tile > 0) {  // the factor of the last one was read
                ptx::mbarrier_wait(shared.output_empty(tile), (row_tile - 1) & 1);
            }
            row_tile += 1;
            ptx::store_shared(shared.factor(tile, threadIdx.x % Traits::kTileRows), __float_as_uint(factor));
            ptx::mbarrier_arrive(shared.factor_full(tile));
        }
    }
}

}  // namespace fmha
