// Warps 8-11: the correction. Rescales O of both query tiles where a maximum grew by more than the threshold, and stores
// it at the end. A thread has a row of A and one of B.
#pragma once

#include <stdint.h>

#include "common/ptx/mbarrier.cuh"
#include "common/ptx/shared.cuh"
#include "common/ptx/warp.cuh"
#include "common/row_output.cuh"
#include "common/work.cuh"
#include "sm100/prefill/order.cuh"
#include "sm100/prefill/shared.cuh"
#include "sm100/ptx/tcgen05.cuh"

namespace fmha {

// O is rescaled and stored by as many columns at a time.
constexpr int kCorrectionColumns = 32;

// Of one query tile, from one row tile to the next.
struct CorrectionCount {
    int outputs = 0;  // O += P V that were waited for
    int factors = 0;
};

// The next factor of this thread's row.
template <class Traits>
__device__ __forceinline__ float take_factor(PrefillShared<Traits> shared, int tile, CorrectionCount& count) {
    const int slot = count.factors % Traits::kFactorSlots;
    ptx::mbarrier_wait(shared.factor_full(tile, slot), count.factors / Traits::kFactorSlots & 1);
    count.factors += 1;
    return __uint_as_float(ptx::load_shared(shared.factor(tile, slot, threadIdx.x % Traits::kTileRows)));
}

// Everything that was multiplied is in O.
template <class Traits>
__device__ __forceinline__ void wait_for_products(PrefillShared<Traits> shared, int tile, CorrectionCount& count) {
    ptx::mbarrier_wait(shared.output_full(tile), count.outputs & 1);
    ptx::tcgen05_fence_after_thread_sync();
    count.outputs += 1;
}

// The MMA may add to O, or overwrite it.
template <class Traits>
__device__ __forceinline__ void hand_output_over(PrefillShared<Traits> shared, int tile) {
    ptx::tcgen05_fence_before_thread_sync();
    ptx::mbarrier_arrive(shared.probability_full(tile));
}

// O *= factor, each lane its own row. Loads and stores are warp-wide, so one row that grew takes its warp along.
template <class Traits>
__device__ __forceinline__ void rescale(uint32_t output, float factor) {
    if (!ptx::any_lane(factor != 1.0f)) {
        return;
    }
#pragma unroll 1
    for (int column = 0; column < Traits::kHeadDim; column += kCorrectionColumns) {
        float values[kCorrectionColumns];
        ptx::tmem_load(values, output + column);
        uint32_t scaled[kCorrectionColumns];
#pragma unroll
        for (int i = 0; i < kCorrectionColumns; ++i) {
            scaled[i] = __float_as_uint(values[i] * factor);
        }
        ptx::tmem_store(output + column, scaled);
    }
    ptx::tmem_wait_store();
}

// Stores a row of O times `factor`, which a row tile without keys has none of: it stores zeros.
template <class Traits>
__device__ __forceinline__ void store_tile(const FmhaParams& params, const Work& work, PrefillShared<Traits> shared,
                                           uint32_t output, int tile, float factor) {
    const int row = tile * Traits::kTileRows + threadIdx.x % Traits::kTileRows;
    const bool stored = row < work.rows;
    const int64_t index = stored ? stored_row(params, work.plane, work.first_row + row) : 0;
#pragma unroll
    for (int column = 0; column < Traits::kHeadDim; column += kCorrectionColumns) {
        float values[kCorrectionColumns] = {};
        if (work.tiles > 0) {
            ptx::tmem_load(values, output + column);
            if (column + kCorrectionColumns == Traits::kHeadDim) {
                hand_output_over<Traits>(shared, tile);
            }
        }
#pragma unroll
        for (int i = 0; i < kCorrectionColumns; ++i) {
            values[i] *= factor;
        }
        if (stored) {
            store_output(params, index, Traits::kHeadDim, column, values);
        }
    }
}

template <class Traits>
__device__ __forceinline__ void correction_role(const FmhaParams& params, PrefillShared<Traits> shared, uint32_t tmem) {
    const uint32_t lane = tmem + (threadIdx.x / 32 % 4 * 32 << 16);
    const auto output = [&](int tile) { return lane + Traits::kTmemOutput + tile * Traits::kHeadDim; };
    RowTiles<Traits> row_tiles;
    Work work;
    CorrectionCount counts[Traits::kQueryTiles];
#pragma unroll
    for (int tile = 0; tile < Traits::kQueryTiles; ++tile) {
        hand_output_over<Traits>(shared, tile);  // nothing is in it yet
    }
#pragma unroll 1
    while (row_tiles.next(params, work)) {
#pragma unroll 1
        for (int j = 1; j < work.tiles; ++j) {
#pragma unroll
            for (int tile = 0; tile < Traits::kQueryTiles; ++tile) {
                const float factor = take_factor<Traits>(shared, tile, counts[tile]);
                wait_for_products<Traits>(shared, tile, counts[tile]);
                rescale<Traits>(output(tile), factor);
                hand_output_over<Traits>(shared, tile);
            }
        }
#pragma unroll
        for (int tile = 0; tile < Traits::kQueryTiles; ++tile) {
            float factor = 0.0f;
            if (work.tiles > 0) {
                factor = take_factor<Traits>(shared, tile, counts[tile]);
                wait_for_products<Traits>(shared, tile, counts[tile]);
            }
            store_tile<Traits>(params, work, shared, output(tile), tile, factor);
        }
    }
}

}  // namespace fmha
