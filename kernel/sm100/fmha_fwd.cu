// Fused attention forward for sm_100a: one CTA computes 128 query rows against the whole KV sequence.
//
// Six warps, each with one role for the whole kernel:
//   0-3  softmax and epilogue: thread = query row = TMEM lane
//   4    MMA: one lane issues S_j = Q K_j^T and O += P_j V_j
//   5    TMA: one lane fills Q and the rings of K and V
//
// S and P are double-buffered in TMEM, so that S_{j+1} is computed while the softmax works on S_j, and P_j is stored
// while P_{j-1} V_{j-1} runs. docs/kernel.md has the maps and the barrier table.
#include <stdint.h>

#include "fmha_params.h"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "softmax.cuh"
#include "traits.cuh"

namespace fmha {

constexpr int kWarpThreads = 32;
constexpr int kMmaWarp = 4;
constexpr int kTmaWarp = 5;

// Addresses in the shared window, named.
template <class Traits>
struct SharedMap {
    uint32_t base;

    __device__ uint32_t query() const { return base + Traits::kSmemQuery; }
    __device__ uint32_t key(int stage) const { return base + Traits::kSmemKey + stage * Traits::kKvTileBytes; }
    __device__ uint32_t value(int stage) const { return base + Traits::kSmemValue + stage * Traits::kKvTileBytes; }
    __device__ uint32_t tmem_address() const { return base + Traits::kSmemTmemAddress; }

    __device__ uint32_t query_full() const { return barrier(Traits::kQueryFull); }
    __device__ uint32_t key_full(int stage) const { return barrier(Traits::kKeyFull + stage); }
    __device__ uint32_t key_empty(int stage) const { return barrier(Traits::kKeyEmpty + stage); }
    __device__ uint32_t value_full(int stage) const { return barrier(Traits::kValueFull + stage); }
    __device__ uint32_t value_empty(int stage) const { return barrier(Traits::kValueEmpty + stage); }
    __device__ uint32_t score_full(int buffer) const { return barrier(Traits::kScoreFull + buffer); }
    __device__ uint32_t probability_full(int buffer) const { return barrier(Traits::kProbabilityFull + buffer); }
    __device__ uint32_t output_full() const { return barrier(Traits::kOutputFull); }

    __device__ uint32_t barrier(int index) const { return base + Traits::kSmemBarriers + 8 * index; }
};

// Tile j of a ring of two: its slot, and the parity of the slot's phase that tile j completes.
struct Turn {
    int slot;
    uint32_t parity;

    __device__ explicit Turn(int tile) : slot(tile & 1), parity((tile >> 1) & 1) {}
};

// ---- Setup ----

// One arrival a barrier, except probability_full, where every softmax thread arrives.
template <class Traits>
__device__ __forceinline__ void init_barriers(SharedMap<Traits> shared) {
    ptx::mbarrier_init(shared.query_full(), 1);
    for (int i = 0; i < Traits::kStages; ++i) {
        ptx::mbarrier_init(shared.key_full(i), 1);
        ptx::mbarrier_init(shared.key_empty(i), 1);
        ptx::mbarrier_init(shared.value_full(i), 1);
        ptx::mbarrier_init(shared.value_empty(i), 1);
    }
    for (int i = 0; i < Traits::kBuffers; ++i) {
        ptx::mbarrier_init(shared.score_full(i), 1);
        ptx::mbarrier_init(shared.probability_full(i), Traits::kRows);
    }
    ptx::mbarrier_init(shared.output_full(), 1);
    ptx::fence_proxy_async();
}

// ---- Warp 5: TMA ----

__device__ __forceinline__ void load_tile(const FmhaTensorMap& map, uint32_t destination, uint32_t full, int bytes,
                                          int row) {
    ptx::mbarrier_arrive_expect_tx(full, bytes);
    ptx::tma_load_3d(destination, map, full, 0, row, blockIdx.z);
}

template <class Traits>
__device__ __forceinline__ void tma_role(const FmhaParams& params, SharedMap<Traits> shared, int tiles) {
    load_tile(params.q, shared.query(), shared.query_full(), Traits::kQueryBytes, blockIdx.x * Traits::kRows);
#pragma unroll 1
    for (int j = 0; j < tiles; ++j) {
        const Turn turn(j);
        // The slot is free once tile j-2 was read: the phase before the one this tile completes. On the first turn of a
        // slot that phase counts as complete.
        ptx::mbarrier_wait(shared.key_empty(turn.slot), turn.parity ^ 1);
        load_tile(params.k, shared.key(turn.slot), shared.key_full(turn.slot), Traits::kKvTileBytes,
                  j * Traits::kKeys);
        ptx::mbarrier_wait(shared.value_empty(turn.slot), turn.parity ^ 1);
        load_tile(params.v, shared.value(turn.slot), shared.value_full(turn.slot), Traits::kKvTileBytes,
                  j * Traits::kKeys);
    }
}

// ---- Warp 4: MMA ----

// S_j = Q K_j^T.
template <class Traits>
__device__ __forceinline__ void issue_scores(SharedMap<Traits> shared, uint32_t tmem, int slot) {
    const uint32_t score = tmem + Traits::kTmemScore + slot * Traits::kScoreColumns;
    const uint64_t query = smem_descriptor(shared.query(), 0, Traits::kKMajorStrideBytes, Swizzle::k128Bytes);
    const uint64_t key = smem_descriptor(shared.key(slot), 0, Traits::kKMajorStrideBytes, Swizzle::k128Bytes);
#pragma unroll
    for (int k = 0; k < Traits::kHeadDim / Traits::kMmaK; ++k) {
        const uint32_t step = k * Traits::kKMajorStepBytes;
        ptx::mma_f16_smem(score, advance_descriptor(query, step), advance_descriptor(key, step),
                          Traits::kScoreInstruction, k > 0);
    }
}

// O += P_j V_j; O = P_0 V_0 for the first tile, whose first MMA overwrites whatever TMEM held.
template <class Traits>
__device__ __forceinline__ void issue_output(SharedMap<Traits> shared, uint32_t tmem, int slot, bool first_tile) {
    const uint32_t probability = tmem + Traits::kTmemProbability + slot * Traits::kProbabilityColumns;
    const uint64_t value = smem_descriptor(shared.value(slot), Traits::kMnMajorLeadingBytes,
                                           Traits::kMnMajorStrideBytes, Swizzle::k128Bytes);
#pragma unroll
    for (int k = 0; k < Traits::kKeys / Traits::kMmaK; ++k) {
        ptx::mma_f16_tmem(tmem + Traits::kTmemOutput, probability + k * Traits::kMmaK / 2,
                          advance_descriptor(value, k * Traits::kMnMajorStepBytes), Traits::kOutputInstruction,
                          k > 0 || !first_tile);
    }
}

// Waits for K_j, issues S_j and commits it.
template <class Traits>
__device__ __forceinline__ void score_step(SharedMap<Traits> shared, uint32_t tmem, int j, int tiles) {
    const Turn turn(j);
    ptx::mbarrier_wait(shared.key_full(turn.slot), turn.parity);
    ptx::tcgen05_fence_after_thread_sync();
    issue_scores<Traits>(shared, tmem, turn.slot);
    ptx::mma_commit(shared.score_full(turn.slot));
    // Only a slot that is filled again: an arrival nobody waits for could come after the CTA has gone.
    if (j + Traits::kStages < tiles) {
        ptx::mma_commit(shared.key_empty(turn.slot));
    }
}

// Waits for P_j (and the rescaled O) and V_j, issues O += P_j V_j and commits it.
template <class Traits>
__device__ __forceinline__ void output_step(SharedMap<Traits> shared, uint32_t tmem, int j, int tiles) {
    const Turn turn(j);
    ptx::mbarrier_wait(shared.value_full(turn.slot), turn.parity);
    ptx::mbarrier_wait(shared.probability_full(turn.slot), turn.parity);
    ptx::tcgen05_fence_after_thread_sync();
    issue_output<Traits>(shared, tmem, turn.slot, j == 0);
    ptx::mma_commit(shared.output_full());
    if (j + Traits::kStages < tiles) {
        ptx::mma_commit(shared.value_empty(turn.slot));
    }
}

template <class Traits>
__device__ __forceinline__ void mma_role(SharedMap<Traits> shared, uint32_t tmem, int tiles) {
    ptx::mbarrier_wait(shared.query_full(), 0);
    score_step<Traits>(shared, tmem, 0, tiles);
    for (int j = 0; j < tiles; ++j) {
        // S_{j+1} goes where S_{j-1} was: the softmax finished reading that before it arrived for P_{j-1}, on which the
        // previous round waited.
        if (j + 1 < tiles) {
            score_step<Traits>(shared, tmem, j + 1, tiles);
        }
        output_step<Traits>(shared, tmem, j, tiles);
    }
}

// ---- Warps 0-3: softmax and epilogue ----

// P_j into TMEM as bf16: column i holds keys 2i (low half) and 2i + 1.
template <int Keys>
__device__ __forceinline__ void store_probabilities(uint32_t address, const float (&row)[Keys]) {
    uint32_t packed[Keys / 2];
#pragma unroll
    for (int i = 0; i < Keys / 2; ++i) {
        packed[i] = ptx::pack_bf16x2(row[2 * i], row[2 * i + 1]);
    }
    ptx::tmem_store(address, packed);
}

// O *= factor, each lane its own row. Loads and stores are warp-wide, so one row that grew takes its warp along.
template <class Traits>
__device__ __forceinline__ void rescale_output(uint32_t address, float factor) {
    if (!ptx::any_lane(factor != 1.0f)) {
        return;
    }
    float output[Traits::kHeadDim];
    ptx::tmem_load(output, address);
    uint32_t scaled[Traits::kHeadDim];
#pragma unroll
    for (int i = 0; i < Traits::kHeadDim; ++i) {
        scaled[i] = __float_as_uint(output[i] * factor);
    }
    ptx::tmem_store(address, scaled);
}

// Stores this thread's row of O, un-normalised, and its statistics.
template <class Traits>
__device__ __forceinline__ void store_row(const FmhaParams& params, const float (&output)[Traits::kHeadDim],
                                          const RowState& state) {
    const int row = blockIdx.x * Traits::kRows + threadIdx.x;
    const int rows = params.t * params.heads;
    if (row >= rows) {
        return;  // a zero-filled query row of the last tile
    }
    const int64_t index = int64_t(blockIdx.z) * rows + row;
    float4* const destination = reinterpret_cast<float4*>(static_cast<float*>(params.o) + index * Traits::kHeadDim);
#pragma unroll
    for (int i = 0; i < Traits::kHeadDim / 4; ++i) {
        destination[i] = make_float4(output[4 * i], output[4 * i + 1], output[4 * i + 2], output[4 * i + 3]);
    }
    const float row_max = state.max * params.scale;
    params.row_max[index] = row_max;
    params.row_sum[index] = state.sum;
    params.lse[index] = row_max + ptx::log2(state.sum) * kLn2;
}

template <class Traits>
__device__ __forceinline__ void softmax_role(const FmhaParams& params, SharedMap<Traits> shared, uint32_t tmem,
                                             int tiles) {
    const uint32_t quarter = tmem + (threadIdx.x / kWarpThreads * kWarpThreads << 16);
    const uint32_t output_address = quarter + Traits::kTmemOutput;
    const float scale_log2 = params.scale * kLog2E;
    RowState state;
    for (int j = 0; j < tiles; ++j) {
        const Turn turn(j);
        ptx::mbarrier_wait(shared.score_full(turn.slot), turn.parity);
        ptx::tcgen05_fence_after_thread_sync();
        float row[Traits::kKeys];
        ptx::tmem_load(row, quarter + Traits::kTmemScore + turn.slot * Traits::kScoreColumns);
        const int valid_keys = params.s_k - j * Traits::kKeys;
        if (valid_keys < Traits::kKeys) {
            mask_tail(row, valid_keys);
        }
        const float factor = softmax_step(row, state, scale_log2);

        // P_j goes where P_{j-2} was, which the MMA finished with before output_full turned in the previous round.
        store_probabilities(quarter + Traits::kTmemProbability + turn.slot * Traits::kProbabilityColumns, row);
        if (j > 0) {
            // Waited for even when nothing is rescaled: it keeps this thread within one phase of the barrier.
            ptx::mbarrier_wait(shared.output_full(), (j - 1) & 1);
            ptx::tcgen05_fence_after_thread_sync();
            rescale_output<Traits>(output_address, factor);
        }
        ptx::tmem_wait_store();
        ptx::tcgen05_fence_before_thread_sync();
        ptx::mbarrier_arrive(shared.probability_full(turn.slot));
    }

    ptx::mbarrier_wait(shared.output_full(), (tiles - 1) & 1);
    ptx::tcgen05_fence_after_thread_sync();
    float output[Traits::kHeadDim];
    ptx::tmem_load(output, output_address);
    store_row<Traits>(params, output, state);
}

// ---- The CTA ----

template <class Traits>
__device__ __forceinline__ void forward(const FmhaParams& params, uint32_t shared_base) {
    constexpr uint32_t kAlignment = kFmhaSharedAlignment;
    const SharedMap<Traits> shared{(shared_base + kAlignment - 1) & ~(kAlignment - 1)};
    const int warp = threadIdx.x / kWarpThreads;
    const int tiles = (params.s_k + Traits::kKeys - 1) / Traits::kKeys;

    if (warp == kMmaWarp) {
        ptx::tmem_alloc(shared.tmem_address(), Traits::kTmemColumns);
        ptx::tmem_relinquish_alloc_permit();
    } else if (warp == kTmaWarp && ptx::elect_one()) {
        ptx::prefetch_tensor_map(params.q);
        ptx::prefetch_tensor_map(params.k);
        ptx::prefetch_tensor_map(params.v);
        init_barriers<Traits>(shared);
    }
    __syncwarp();
    // Publishes the barriers and the TMEM address to every warp. Allocation is synchronous, so no tcgen05 fence is due.
    __syncthreads();
    const uint32_t tmem = ptx::load_shared(shared.tmem_address());

    if (warp == kTmaWarp) {
        if (ptx::elect_one()) {
            tma_role<Traits>(params, shared, tiles);
        }
    } else if (warp == kMmaWarp) {
        if (ptx::elect_one()) {
            mma_role<Traits>(shared, tmem, tiles);
        }
    } else {
        softmax_role<Traits>(params, shared, tmem, tiles);
    }
    __syncwarp();

    // The last reads of TMEM happen before it is given back; each softmax warp waited for the last MMA.
    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();
    if (warp == kMmaWarp) {
        ptx::tcgen05_fence_after_thread_sync();
        ptx::tmem_dealloc(tmem, Traits::kTmemColumns);
    }
}

}  // namespace fmha

static_assert(FMHA_HEAD_DIM == 64, "this entry is built with -DFMHA_HEAD_DIM=64");

extern "C" __global__ void __launch_bounds__(kFmhaSm100Threads, 1)
    fmha_fwd_sm100_hd64_ptmem(const __grid_constant__ FmhaParams params) {
    extern __shared__ __align__(1024) uint8_t dynamic_shared[];
    fmha::forward<fmha::FmhaTraits<FMHA_HEAD_DIM>>(params, fmha::ptx::shared_address(dynamic_shared));
}
