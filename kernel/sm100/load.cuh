// Warp 5: TMA fills Q once and then the ring of K and V tiles.
#pragma once

#include <stdint.h>

#include "common/ptx/mbarrier.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/warp.cuh"
#include "common/work.cuh"
#include "shared_map.cuh"

namespace fmha {

// By the whole warp: there are as many boxes as rows where a group of heads is odd. `ByHead`, here and below, is
// by_head's answer: asked once, it costs no tile anything.
template <class Traits, bool ByHead>
__device__ __forceinline__ void load_query(const FmhaParams& params, const Work& work, SharedMap<Traits> shared) {
    const uint64_t policy = ptx::policy_evict_first();
    const bool leader = ptx::elect_one();
    if (leader) {
        ptx::mbarrier_arrive_expect_tx(shared.query_full(), Traits::kQueryBytes);
    }
    __syncwarp();  // the bytes are expected before any lane's box brings some
    for (int c = 0; c < Traits::kHeadChunks; ++c) {
        const uint32_t chunk = shared.query() + c * Traits::kRowChunkBytes;
        if constexpr (ByHead) {
            const int step = params.query_box;
            for (int row = threadIdx.x % 32 * step; row < Traits::kRows; row += 32 * step) {
                const int own = work.first_row + row;
                ptx::tma_load_5d(chunk + row * Traits::kChunkRowBytes, params.q, shared.query_full(),
                                 c * Traits::kChunkElements, own % params.heads, own / params.heads, work.plane.kv_head,
                                 work.plane.entry, policy);
            }
        } else if (leader) {
            ptx::tma_load_3d(chunk, params.q, shared.query_full(), c * Traits::kChunkElements, work.first_row,
                             work.batch, policy);
        }
    }
    __syncwarp();
}

// Dense keys [key, key + kKeys), by one thread.
template <class Traits, bool ByHead>
__device__ __forceinline__ void load_dense(const Work& work, const FmhaTensorMap& map, uint32_t destination,
                                           uint32_t full, int key, uint64_t policy) {
    for (int c = 0; c < Traits::kHeadChunks; ++c) {
        const uint32_t chunk = destination + c * Traits::kKeyChunkBytes;
        if constexpr (ByHead) {
            ptx::tma_load_4d(chunk, map, full, c * Traits::kChunkElements, key, work.plane.kv_head, work.plane.entry,
                             policy);
        } else {
            ptx::tma_load_3d(chunk, map, full, c * Traits::kChunkElements, key, work.batch, policy);
        }
    }
}

// Entries [entry, entry + kKeys) of the index list, by the whole warp: each lane gathers four rows at a time. An entry
// that names no row takes the first one past the tensor, which reads as zero: an invalid probability of 0 meets no NaN.
template <class Traits>
__device__ __forceinline__ void gather_sparse(const FmhaParams& params, const Work& work, const FmhaTensorMap& map,
                                              uint32_t destination, uint32_t full, int entry, uint64_t policy) {
    constexpr int kGroups = Traits::kKeys / 4;
    static_assert(32 % kGroups == 0, "a lane stays with its four rows");
    const int lane = threadIdx.x % 32;
    const int group = lane % kGroups;
    int rows[4];
    for (int i = 0; i < 4; ++i) {
        const int row = sparse_row(params, work, entry + 4 * group + i);
        rows[i] = row < 0 ? params.batch * params.s_sparse : row;
    }
    for (int c = lane / kGroups; c < Traits::kHeadChunks; c += 32 / kGroups) {
        ptx::tma_gather4(destination + c * Traits::kKeyChunkBytes + group * 4 * Traits::kChunkRowBytes, map, full,
                         c * Traits::kChunkElements, rows, policy);
    }
}

// Fills the ring's slot for use `use`.
template <class Traits, bool ByHead>
__device__ __forceinline__ void load_tile(const FmhaParams& params, const Work& work, SharedMap<Traits> shared,
                                          const RingOrder& order, int use, uint64_t policy) {
    const Turn<Traits::kStages> turn(use);
    const uint32_t full = shared.kv_full(turn.slot);
    const bool value = order.is_value(use);
    const bool leader = ptx::elect_one();
    // The slot is free once its previous tile was read: the phase before the one this use completes. On the first turn
    // of a slot that phase counts as complete.
    ptx::mbarrier_wait(shared.kv_empty(turn.slot), turn.parity ^ 1);
    if (leader) {
        ptx::mbarrier_arrive_expect_tx(full, Traits::kKvTileBytes);
    }
    __syncwarp();  // the bytes are expected before any lane's gather brings some
    const int n = work.first_tile + order.tile(use);
    if (!is_dense(work, n)) {
        gather_sparse<Traits>(params, work, value ? params.sparse_v : params.sparse_k, shared.kv(turn.slot), full,
                              first_entry(work, n, Traits::kKeys), policy);
    } else if (leader) {
        load_dense<Traits, ByHead>(work, value ? params.v : params.k, shared.kv(turn.slot), full,
                                   first_key(work, n, Traits::kKeys), policy);
    }
}

// By the whole warp.
template <class Traits, bool ByHead>
__device__ __forceinline__ void load_role(const FmhaParams& params, const Work& work, SharedMap<Traits> shared) {
    load_query<Traits, ByHead>(params, work, shared);
    // K and V are worth keeping where other CTAs read them too: those of the other query rows.
    const uint64_t policy = gridDim.x > 1 ? ptx::policy_evict_last() : ptx::policy_evict_first();
    const RingOrder order{work.tiles, (params.flags & kFmhaSharedKv) != 0};
#pragma unroll 1
    for (int use = 0; use < order.count(); ++use) {
        load_tile<Traits, ByHead>(params, work, shared, order, use, policy);
    }
}

}  // namespace fmha
