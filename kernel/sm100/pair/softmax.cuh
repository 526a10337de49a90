// Warps 0-3 of both CTAs: softmax and epilogue of the CTA's rows. A thread has one row, or half of the columns of one.
#pragma once

#include <stdint.h>

#include "common/ptx/cluster.cuh"
#include "common/ptx/grid.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/shared.cuh"
#include "common/ptx/warp.cuh"
#include "common/softmax.cuh"
#include "sm100/pair/shared.cuh"
#include "sm100/pair/tiles.cuh"
#include "sm100/prefill/exponential.cuh"
#include "sm100/ptx/tcgen05.cuh"
#include "sm100/softmax_role.cuh"

namespace fmha {

// Keys [first, first + Keys) of this thread's share of P, to shared memory as store_probabilities does.
template <class Traits, int Words>
__device__ __forceinline__ void store_packed(PairShared<Traits> shared, const SoftmaxThread<Traits>& thread, int first,
                                             const uint32_t (&packed)[Words]) {
    constexpr int kChunkVectors = Traits::kChunkElements / 8;
#pragma unroll
    for (int i = 0; i < Words / 4; ++i) {
        const int vector = (thread.share * Traits::kThreadKeys + first) / 8 + i;
        const uint32_t address = shared.probability() + vector / kChunkVectors * Traits::kRowChunkBytes +
                                 swizzled_vector(thread.row, vector % kChunkVectors);
        ptx::store_shared_v4(address, packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
    }
}

// Tile j of the row tile, `number` of all of the pair's: S to P, and O rescaled if the anchor moved.
template <class Traits>
__device__ __forceinline__ void pair_softmax_step(const FmhaParams& params, const Work& work, PairShared<Traits> shared,
                                                  const SoftmaxThread<Traits>& thread, uint32_t probability_full,
                                                  RowState& state, int j, int number, int& exchanges) {
    constexpr int kHalf = Traits::kThreadKeys / 2;
    const Turn<Traits::kBuffers> turn(number);
    const float scale_log2 = params.scale * kLog2E;
    ptx::mbarrier_wait(shared.score_full(turn.slot), turn.parity);
    ptx::tcgen05_fence_after_thread_sync();
    float row[Traits::kThreadKeys];
    ptx::tmem_load(row, thread.tmem + Traits::kTmemScore + turn.slot * Traits::kScoreColumns);
    mask_keys<Traits>(work, thread, first_key(work, work.first_tile + j, Traits::kKeys), row);
    const float tile_max =
        exchange<Traits>(shared, exchanges++ & 1, max_of_tile(row), [](float a, float b) { return fmaxf(a, b); });
    const float factor = raise_anchor(state, tile_max, scale_log2);
    uint64_t sum[2] = {};
    uint32_t packed[kHalf / 2];
    exponentiate<kHalf>(row, packed, scale_log2, state.anchor, sum);
    if (number > 0) {  // P goes where that of the tile before was, once the MMA has read it
        ptx::mbarrier_wait(shared.output_full(), (number - 1) & 1);
        ptx::tcgen05_fence_after_thread_sync();
    }
    store_packed<Traits>(shared, thread, 0, packed);
    if (j > 0) {
        rescale_output<Traits>(thread.tmem + Traits::kTmemOutput, factor);
    }
    exponentiate<kHalf>(row + kHalf, packed, scale_log2, state.anchor, sum);
    store_packed<Traits>(shared, thread, kHalf, packed);
    ptx::tmem_wait_store();
    ptx::fence_proxy_async();
    ptx::tcgen05_fence_before_thread_sync();
    __syncwarp();
    if (ptx::elect_one()) {
        ptx::mbarrier_arrive_release_cluster(probability_full);
    }
    const float2 added = ptx::unpack_f32x2(ptx::add_f32x2(sum[0], sum[1]));
    state.sum += added.x + added.y;
}

// Until O of the row tile that ends with tile of keys `number` - 1 is there from `column` on: the first accumulator
// before the last. `with_keys` row tiles have come before.
template <class Traits>
__device__ __forceinline__ void wait_for_output(PairShared<Traits> shared, int column, int number, int with_keys) {
    if (Traits::kOutputs > 1 && column == 0) {
        ptx::mbarrier_wait(shared.first_output_full(), with_keys & 1);
    } else if (column == (Traits::kOutputs - 1) * Traits::kPartColumns) {
        ptx::mbarrier_wait(shared.output_full(), (number - 1) & 1);
    } else {
        return;
    }
    ptx::tcgen05_fence_after_thread_sync();
}

template <class Traits>
__device__ __forceinline__ void pair_softmax_role(const FmhaParams& params, PairShared<Traits> shared, uint32_t tmem,
                                                  int rank, RowTiles<Traits> row_tiles) {
    const uint32_t probability_full = of_leader(shared.probability_full());
    Work work;
    int number = 0;     // tiles of keys before this row tile
    int with_keys = 0;  // row tiles before this one that have any
    int exchanges = 0;  // whose buffers alternate
#pragma unroll 1
    while (row_tiles.next(params, work)) {
        ptx::wait_for_primary();  // from the second row tile on it has returned before
        work = of_cta<Traits>(work, rank);
        const SoftmaxThread<Traits> thread(params, work, tmem);
        RowState state;
#pragma unroll 1
        for (int j = 0; j < work.tiles; ++j) {
            pair_softmax_step<Traits>(params, work, shared, thread, probability_full, state, j, number + j, exchanges);
        }
        number += work.tiles;
        if (work.tiles > 0) {
            state.sum = exchange<Traits>(shared, exchanges++ & 1, state.sum, [](float a, float b) { return a + b; });
        }
        store_row<Traits>(params, work, thread, state,
                          [&](int column) { wait_for_output<Traits>(shared, column, number, with_keys); });
        with_keys += work.tiles > 0;
    }
}

}  // namespace fmha
