// Warps 0-3: softmax and epilogue. A thread has one row, or a share of the columns of one (Traits::kThreadsPerRow).
#pragma once

#include <stdint.h>

#include "common/ptx/mbarrier.cuh"
#include "common/ptx/shared.cuh"
#include "common/ptx/warp.cuh"
#include "common/row_output.cuh"
#include "common/softmax.cuh"
#include "common/work.cuh"
#include "partial.cuh"
#include "portions.cuh"
#include "ptx/tcgen05.cuh"
#include "shared_map.cuh"

namespace fmha {

template <class Traits>
struct SoftmaxThread {
    int row;        // of the CTA's
    int share;      // which columns of S, P and O are this thread's; 0 where a row has one thread
    uint32_t tmem;  // of the lane
    KeyRange visible;

    __device__ SoftmaxThread(const FmhaParams& params, const Work& work, uint32_t tmem_base)
        : row(threadIdx.x % Traits::kRows),
          share(threadIdx.x / Traits::kRows),
          tmem(tmem_base + (threadIdx.x / 32 * 32 << 16)),
          visible(visible_keys(params, work.kv_len, work.query_offset, (work.first_row + row) / params.heads)) {}
};

// The threads of a row are in warps w and w + 2, or in all four; barrier 0 is the CTA's own.
template <class Traits>
__device__ __forceinline__ void row_barrier() {
    if constexpr (Traits::kThreadsPerRow == 2) {
        ptx::named_barrier_sync(1 + threadIdx.x / 32 % 2, 64);
    } else {
        ptx::named_barrier_sync(1, Traits::kSoftmaxThreads);
    }
}

// The largest (or the sum, as `combine` says) of the values that the threads of a row have, the same in each of them.
// `buffer` alternates: the barrier of one exchange shows that the values of the one before were read.
template <class Traits, class Combine>
__device__ __forceinline__ float exchange(SharedMap<Traits> shared, int buffer, float mine, Combine combine) {
    float values[Traits::kThreadsPerRow] = {mine};
    if constexpr (Traits::kThreadsPerRow > 1) {
        ptx::store_shared(shared.exchange(buffer, threadIdx.x), __float_as_uint(mine));
        row_barrier<Traits>();
#pragma unroll
        for (int i = 1; i < Traits::kThreadsPerRow; ++i) {
            values[i] = __uint_as_float(ptx::load_shared(shared.exchange(buffer, threadIdx.x ^ i * Traits::kRows)));
        }
    }
    // In pairs, and pairs of pairs: `combine` commutes, so that all threads of the row have the same bits.
#pragma unroll
    for (int step = 1; step < Traits::kThreadsPerRow; step *= 2) {
#pragma unroll
        for (int i = 0; i < Traits::kThreadsPerRow; i += 2 * step) {
            values[i] = combine(values[i], values[i + step]);
        }
    }
    return values[0];
}

// Which of this thread's entries of tile n stand for a row, the same words in every lane. None for a dense tile.
template <class Traits>
__device__ __forceinline__ void valid_entries(const FmhaParams& params, const Work& work,
                                              const SoftmaxThread<Traits>& thread, int n,
                                              uint32_t (&bits)[Traits::kThreadKeys / 32]) {
    const int entry = first_entry(work, n, Traits::kKeys) + thread.share * Traits::kThreadKeys + int(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < Traits::kThreadKeys / 32; ++i) {
        bits[i] = is_dense(work, n) ? 0 : ptx::ballot(sparse_row(params, work, entry + 32 * i) >= 0);
    }
}

// Sets what the row does not see of the dense keys from `key` on to -inf.
template <class Traits>
__device__ __forceinline__ void mask_keys(const Work& work, const SoftmaxThread<Traits>& thread, int key,
                                          float (&row)[Traits::kThreadKeys]) {
    if (needs_mask(work, key, Traits::kKeys)) {
        const int column = thread.share * Traits::kThreadKeys;
        const int first = thread.visible.first - key - column, end = thread.visible.end - key - column;
        if constexpr (Traits::kProven) {
            mask_range(row, first, end);
        } else {
            mask_range_by_eight(row, first, end);
        }
    }
}

// Sets what the row does not see of tile n to -inf.
template <class Traits>
__device__ __forceinline__ void mask_tile(const Work& work, const SoftmaxThread<Traits>& thread, int n,
                                          const uint32_t (&bits)[Traits::kThreadKeys / 32],
                                          float (&row)[Traits::kThreadKeys]) {
    if (is_dense(work, n)) {
        mask_keys<Traits>(work, thread, first_key(work, n, Traits::kKeys), row);
    } else {
        mask_bits(row, bits);
    }
}

// A whole row of P from the two threads that have a half each: as A of an MMA with M = 64 it is read in both halves of
// the lanes, and a warp reaches only its own. The next tile's exchange of maxima shows that the vectors were read.
template <class Traits>
__device__ __forceinline__ void join_halves(SharedMap<Traits> shared, const SoftmaxThread<Traits>& thread,
                                            const uint32_t (&mine)[Traits::kThreadKeys / 2],
                                            uint32_t (&row)[Traits::kKeys / 2]) {
    constexpr int kWords = Traits::kThreadKeys / 2;
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
        ptx::store_shared_v4(shared.exchange_vector(i / 4, threadIdx.x), mine[i], mine[i + 1], mine[i + 2],
                             mine[i + 3]);
    }
    row_barrier<Traits>();
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
        const uint4 v = ptx::load_shared_v4(shared.exchange_vector(i / 4, threadIdx.x ^ Traits::kRows));
        const uint32_t other[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            row[i + k] = thread.share == 0 ? mine[i + k] : other[k];
            row[kWords + i + k] = thread.share == 0 ? other[k] : mine[i + k];
        }
    }
}

// P_j as bf16. In TMEM column i holds keys 2i (low half) and 2i + 1; in shared memory P is a K-major operand: the eight
// threads that store 16 bytes at once have eight rows, whose swizzle leads to eight different groups of banks.
template <class Traits>
__device__ __forceinline__ void store_probabilities(SharedMap<Traits> shared, const SoftmaxThread<Traits>& thread,
                                                    int buffer, const float (&row)[Traits::kThreadKeys]) {
    uint32_t packed[Traits::kThreadKeys / 2];
#pragma unroll
    for (int i = 0; i < Traits::kThreadKeys / 2; ++i) {
        packed[i] = ptx::pack_bf16x2(row[2 * i], row[2 * i + 1]);
    }
    if constexpr (Traits::kPInShared) {
        constexpr int kVectors = Traits::kThreadKeys / 8;
        constexpr int kChunkVectors = Traits::kChunkElements / 8;
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
            const int vector = thread.share * kVectors + i;
            const uint32_t address = shared.probability(buffer) + vector / kChunkVectors * Traits::kRowChunkBytes +
                                     swizzled_vector(thread.row, vector % kChunkVectors);
            ptx::store_shared_v4(address, packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
        }
    } else {
        const uint32_t address = thread.tmem + Traits::kTmemProbability + buffer * Traits::kProbabilityColumns;
        if constexpr (Traits::kThreadsPerRow == 1) {
            ptx::tmem_store(address, packed);
        } else {
            uint32_t whole[Traits::kKeys / 2];
            join_halves<Traits>(shared, thread, packed, whole);
            ptx::tmem_store(address, whole);
        }
    }
}

// O *= factor, each lane its own row. Loads and stores are warp-wide, so one row that grew takes its warp along.
template <class Traits>
__device__ __forceinline__ void rescale_output(uint32_t address, float factor) {
    if (!ptx::any_lane(factor != 1.0f)) {
        return;
    }
#pragma unroll 1
    for (int column = 0; column < Traits::kOutputColumns; column += Traits::kOutputChunk) {
        float output[Traits::kOutputChunk];
        ptx::tmem_load(output, address + column);
        uint32_t scaled[Traits::kOutputChunk];
#pragma unroll
        for (int i = 0; i < Traits::kOutputChunk; ++i) {
            scaled[i] = __float_as_uint(output[i] * factor);
        }
        ptx::tmem_store(address + column, scaled);
    }
}

// What the epilogue waits for before it reads O from a column on, where O is there as a whole.
struct AtOnce {
    __device__ __forceinline__ void operator()(int) const {}
};

// Gives O to `store` by as many columns at a time as the registers have room for, with the first one's element, once
// `wait` has returned for them. Without tiles nothing was accumulated, and O is not read.
template <class Traits, class Wait, class Store>
__device__ __forceinline__ void for_output(const Work& work, const SoftmaxThread<Traits>& thread, bool stored,
                                           const Wait& wait, Store store) {
#pragma unroll 1
    for (int column = 0; column < Traits::kOutputColumns; column += Traits::kOutputChunk) {
        float output[Traits::kOutputChunk] = {};
        if (work.tiles > 0) {
            wait(column);
            ptx::tmem_load(output, thread.tmem + Traits::kTmemOutput + column);
        }
        if (stored) {
            store(Traits::output_element(column, thread.share), output);
        }
    }
}

// The epilogue: O relative to the true maximum, normalised if asked for, and the row's statistics; or the part of a
// split. `wait` as for_output has it.
template <class Traits, class Wait = AtOnce>
__device__ __forceinline__ void store_row(const FmhaParams& params, const Work& work,
                                          const SoftmaxThread<Traits>& thread, const RowState& state,
                                          const Wait& wait = {}) {
    const bool stored = thread.row < work.rows;
    const int rows = params.t * params.heads;
    const int row = work.first_row + thread.row;
    const float shift = anchor_to_max(state, params.scale * kLog2E);
    const float max = state.max * params.scale;
    const float sum = state.sum * shift;
    const int64_t in_planes = part_of(params, work) * rows + row;
    if (balanced(params) ? work.split >= 0 : params.splits > 1) {
        if (stored && thread.share == 0) {
            params.partial_max[in_planes] = max;
            params.partial_sum[in_planes] = sum;
        }
        const PartOutput<Traits::kHeadDim, Traits::kOutputChunk> part(params, in_planes);
        for_output<Traits>(work, thread, stored, wait, [&](int element, const float (&output)[Traits::kOutputChunk]) {
            part.store(element, output, shift);
        });
        return;
    }
    const int64_t index = by_head(params) ? stored_row(params, work.plane, row) : in_planes;
    float factor = shift;
    if (stored) {
        factor *= output_factor(params, query_head(params, work.plane, row), max, sum);
        if (thread.share == 0) {
            store_statistics(params, index, max, sum);
        }
    }
    for_output<Traits>(work, thread, stored, wait, [&](int element, float (&output)[Traits::kOutputChunk]) {
#pragma unroll
        for (int i = 0; i < Traits::kOutputChunk; ++i) {
            output[i] *= factor;
        }
        store_output(params, index, Traits::kHeadDim, element, output);
    });
}

// Tile j of the CTA's range: S_j to P_j, and O rescaled if the anchor moved.
template <class Traits>
__device__ __forceinline__ void softmax_step(const FmhaParams& params, const Work& work, SharedMap<Traits> shared,
                                             const SoftmaxThread<Traits>& thread, RowState& state, int j) {
    const Turn<Traits::kBuffers> turn(j);
    const float scale_log2 = params.scale * kLog2E;
    const int n = work.first_tile + j;
    uint32_t entries[Traits::kThreadKeys / 32];
    valid_entries<Traits>(params, work, thread, n, entries);  // before the wait, which hides the loads' latency
    ptx::mbarrier_wait(shared.score_full(turn.slot), turn.parity);
    ptx::tcgen05_fence_after_thread_sync();
    float row[Traits::kThreadKeys];
    ptx::tmem_load(row, thread.tmem + Traits::kTmemScore + turn.slot * Traits::kScoreColumns);
    mask_tile<Traits>(work, thread, n, entries, row);
    const float tile_max =
        exchange<Traits>(shared, turn.slot, max_of(row), [](float a, float b) { return fmaxf(a, b); });
    const float factor = raise_anchor(state, tile_max, scale_log2);
    exponentiate(row, state, scale_log2);

    // P_j goes where P_{j-2} was, which the MMA finished with before output_full turned in the previous round.
    store_probabilities<Traits>(shared, thread, turn.slot, row);
    if (j > 0) {
        // Waited for even when nothing is rescaled: it keeps this thread within one phase of the barrier.
        ptx::mbarrier_wait(shared.output_full(), (j - 1) & 1);
        ptx::tcgen05_fence_after_thread_sync();
        rescale_output<Traits>(thread.tmem + Traits::kTmemOutput, factor);
    }
    ptx::tmem_wait_store();
    if constexpr (Traits::kPInShared) {
        ptx::fence_proxy_async();
    }
    ptx::tcgen05_fence_before_thread_sync();
    ptx::mbarrier_arrive(shared.probability_full(turn.slot));
}

template <class Traits>
__device__ __forceinline__ void softmax_role(const FmhaParams& params, const Work& work, SharedMap<Traits> shared,
                                             uint32_t tmem) {
    const SoftmaxThread<Traits> thread(params, work, tmem);
    RowState state;
#pragma unroll 1
    for (int j = 0; j < work.tiles; ++j) {
        softmax_step<Traits>(params, work, shared, thread, state, j);
    }
    state.sum = exchange<Traits>(shared, work.tiles & 1, state.sum, [](float a, float b) { return a + b; });
    ptx::mbarrier_wait(shared.output_full(), (work.tiles - 1) & 1);
    ptx::tcgen05_fence_after_thread_sync();
    store_row<Traits>(params, work, thread, state);
}

}  // namespace fmha
