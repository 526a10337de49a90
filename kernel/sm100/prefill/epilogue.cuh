// Warps 8-11: the epilogue. Stores O of both query tiles while the next row tile begins. A thread has a row of A and
// one of B.
#pragma once

#include <stdint.h>

#include "common/ptx/mbarrier.cuh"
#include "common/ptx/shared.cuh"
#include "common/row_output.cuh"
#include "common/work.cuh"
#include "sm100/prefill/row_tiles.cuh"
#include "sm100/prefill/shared.cuh"
#include "sm100/ptx/tcgen05.cuh"

namespace fmha {

// Stores a row of O times `factor`. O may be overwritten once it is in registers; a row tile without keys has none and
// stores zeros.
template <class Traits>
__device__ __forceinline__ void store_tile(const FmhaParams& params, const Work& work, PrefillShared<Traits> shared,
                                           uint32_t output, int tile, float factor) {
    constexpr int kColumns = 32;
    const int row = tile * Traits::kTileRows + threadIdx.x % Traits::kTileRows;
    const bool stored = row < work.rows;
    const int64_t index = stored ? stored_row(params, work.plane, work.first_row + row) : 0;
#pragma unroll
    for (int column = 0; column < Traits::kHeadDim; column += kColumns) {
        float values[kColumns] = {};
        if (work.tiles > 0) {
            ptx::tmem_load(values, output + column);
            if (column + kColumns == Traits::kHeadDim) {
                ptx::tcgen05_fence_before_thread_sync();
                ptx::mbarrier_arrive(shared.output_empty(tile));
            }
        }
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
            values[i] *= factor;
        }
        if (stored) {
            store_output(params, index, Traits::kHeadDim, column, values);
        }
    }
}

template <class Traits>
__device__ __forceinline__ void epilogue_role(const FmhaParams& params, PrefillShared<Traits> shared, uint32_t tmem) {
    const uint32_t lane = tmem + (threadIdx.x / 32 % 4 * 32 << 16);
    RowTiles<Traits> row_tiles;
    Work work;
    int number = 0;    // tiles of keys until the end of this row tile
    int row_tile = 0;  // of those with keys
#pragma unroll 1
    while (row_tiles.next(params, work)) {
        number += work.tiles;
#pragma unroll 1
        for (int tile = 0; tile < Traits::kQueryTiles; ++tile) {
            float factor = 0.0f;
            if (work.tiles > 0) {
                ptx::mbarrier_wait(shared.factor_full(tile), row_tile & 1);
                factor = __uint_as_float(ptx::load_shared(shared.factor(tile, threadIdx.x % Traits::kTileRows)));
                ptx::mbarrier_wait(shared.output_full(tile), (number - 1) & 1);
                ptx::tcgen05_fence_after_thread_sync();
            }
            store_tile<Traits>(params, work, shared, lane + Traits::kTmemOutput + tile * Traits::kHeadDim, tile,
                               factor);
        }
        row_tile += work.tiles > 0;
    }
}

}  // namespace fmha
