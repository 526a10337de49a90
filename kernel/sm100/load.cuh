// Warp 5: TMA fills Q once and then the ring of K and V tiles.
#pragma once

#include <stdint.h>

#include "common/pages.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/shared.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/warp.cuh"
#include "common/work.cuh"
#include "shared_map.cuh"

namespace fmha {

// By the whole warp: there are as many boxes as rows where a group of heads is odd. `ByHead`, here and below, is
// by_head's answer: asked once, it costs no tile anything. Packed queries are one entry's to the map.
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
            const bool packed = packed_queries(params);
            const int entry = work.plane.entry, before = packed ? params.cu_seqlens_q[entry] : 0;
            const int step = params.query_box;
            for (int row = threadIdx.x % 32 * step; row < Traits::kRows; row += 32 * step) {
                const int own = work.first_row + row;
                ptx::tma_load_5d(chunk + row * Traits::kChunkRowBytes, params.q, shared.query_full(),
                                 c * Traits::kChunkElements, own % params.heads, before + own / params.heads,
                                 work.plane.kv_head, packed ? 0 : entry, policy);
            }
        } else if (leader) {
            ptx::tma_load_3d(chunk, params.q, shared.query_full(), c * Traits::kChunkElements, work.first_row,
                             work.batch, policy);
        }
    }
    __syncwarp();
}

// Part `part` of the dense keys [key, key + kKeys), by one thread. `outer` is the last coordinate of K and V.
template <class Traits, bool ByHead>
__device__ __forceinline__ void load_dense(const Work& work, int outer, const FmhaTensorMap& map, uint32_t destination,
                                           uint32_t full, int key, int part, uint64_t policy) {
    for (int c = 0; c < Traits::kPartChunks; ++c) {
        const uint32_t chunk = destination + c * Traits::kKeyChunkBytes;
        const int element = (part * Traits::kPartChunks + c) * Traits::kChunkElements;
        if constexpr (ByHead) {
            ptx::tma_load_4d(chunk, map, full, element, key, work.plane.kv_head, outer, policy);
        } else {
            ptx::tma_load_3d(chunk, map, full, element, key, outer, policy);
        }
    }
}

// Part `part` of the entries [entry, entry + kKeys) of the index list, by the whole warp: each lane gathers four rows
// at a time. An entry that names no row takes the first one past the tensor, which reads as zero: an invalid
// probability of 0 meets no NaN.
template <class Traits>
__device__ __forceinline__ void gather_sparse(const FmhaParams& params, const Work& work, const FmhaTensorMap& map,
                                              uint32_t destination, uint32_t full, int entry, int part,
                                              uint64_t policy) {
    constexpr int kGroups = Traits::kKeys / 4;
    static_assert(32 % kGroups == 0, "a lane stays with its four rows");
    const int lane = threadIdx.x % 32;
    const int group = lane % kGroups;
    int rows[4];
    for (int i = 0; i < 4; ++i) {
        const int row = sparse_row(params, work, entry + 4 * group + i);
        rows[i] = row < 0 ? params.batch * params.s_sparse : row;
    }
    for (int c = lane / kGroups; c < Traits::kPartChunks; c += 32 / kGroups) {
        ptx::tma_gather4(destination + c * Traits::kKeyChunkBytes + group * 4 * Traits::kChunkRowBytes, map, full,
                         (part * Traits::kPartChunks + c) * Traits::kChunkElements, rows, policy);
    }
}

// Fills the ring's slot for part `part` of use `use`.
template <class Traits, bool ByHead>
__device__ __forceinline__ void load_part(const FmhaParams& params, const Work& work, int outer,
                                          SharedMap<Traits> shared, const RingOrder& order, int use, int part,
                                          uint64_t policy) {
    const auto turn = ring_turn<Traits>(use, part);
    const uint32_t full = shared.kv_full(turn.slot);
    const bool value = order.is_value(use);
    const bool leader = ptx::elect_one();
    // The slot is free once its previous tile was read: the phase before the one this use completes. On the first turn
    // of a slot that phase counts as complete.
    ptx::mbarrier_wait(shared.kv_empty(turn.slot), turn.parity ^ 1);
    if (leader) {
        ptx::mbarrier_arrive_expect_tx(full, Traits::kPartBytes);
    }
    __syncwarp();  // the bytes are expected before any lane's gather brings some
    const int n = work.first_tile + order.tile(use);
    if (!is_dense(work, n)) {
        gather_sparse<Traits>(params, work, value ? params.sparse_v : params.sparse_k, shared.kv(turn.slot), full,
                              first_entry(work, n, Traits::kKeys), part, policy);
    } else if (leader) {
        load_dense<Traits, ByHead>(work, outer, value ? params.v : params.k, shared.kv(turn.slot), full,
                                   first_key(work, n, Traits::kKeys), part, policy);
    }
}

// The boxes of a tile of pages, by the whole warp: a lane has one box of keys, and all chunks of it or some.
template <class Traits>
struct PageLoader {
    KeyBoxes boxes;
    int count;          // of boxes, a tile
    int stride;         // from one of a lane's chunks to the next
    int key;            // of the tile, from its first one on, at which the lane's box is
    int page = -1;      // of the lane's box
    int held_key = -1;  // of the box whose page is known before it is due
    int held_page = -1;

    __device__ PageLoader(const FmhaParams& params, const Work& work)
        : boxes{params, work.plane.entry, work.dense},
          count(Traits::kKeys / params.key_box),
          stride(32 / count),
          key(int(threadIdx.x % 32) % count * params.key_box) {}

    // The tile at `first`, a part after the other. Of K the next tile's page is looked up as well, whose latency the
    // tiles between hide.
    __device__ void load(const Work& work, const FmhaTensorMap& map, uint32_t destination, uint32_t barrier, int first,
                         int part, bool ahead, uint64_t policy) {
        const int own = first + key;
        if (part == 0) {
            page = own == held_key ? held_page : boxes.page_of(own);
            if (ahead) {
                held_key = own + Traits::kKeys;
                held_page = boxes.page_of(held_key);
            }
        }
        const int row = boxes.row_of(own);
        for (int c = int(threadIdx.x % 32) / count; c < Traits::kPartChunks; c += stride) {
            ptx::tma_load_4d(destination + c * Traits::kKeyChunkBytes + key * Traits::kChunkRowBytes, map, barrier,
                             (part * Traits::kPartChunks + c) * Traits::kChunkElements, row, work.plane.kv_head, page,
                             policy);
        }
    }
};

// Rows past kv_len of the last page may hold NaN, and 0 * NaN is NaN: what V multiplies is cleared, and only then is
// the part full. A CTA has at most one such tile.
template <class Traits>
__device__ __forceinline__ void clear_tail(const Work& work, SharedMap<Traits> shared, int slot, int first, int part) {
    ptx::mbarrier_wait(shared.kv_tail(), part);
    constexpr int kVectors = Traits::kChunkRowBytes / 16;
    const int begin = (work.kv_len - first) * kVectors;
    for (int c = 0; c < Traits::kPartChunks; ++c) {
        for (int v = begin + int(threadIdx.x % 32); v < Traits::kKeys * kVectors; v += 32) {
            ptx::store_shared_v4(shared.kv(slot) + c * Traits::kKeyChunkBytes + v * 16, 0u, 0u, 0u, 0u);
        }
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (ptx::elect_one()) {
        ptx::mbarrier_arrive(shared.kv_full(slot));
    }
    __syncwarp();
}

// As load_role, of keys in pages.
template <class Traits>
__device__ __forceinline__ void load_pages_role(const FmhaParams& params, const Work& work, SharedMap<Traits> shared) {
    load_query<Traits, true>(params, work, shared);
    const uint64_t policy = gridDim.x > 1 ? ptx::policy_evict_last() : ptx::policy_evict_first();
    const RingOrder order{work.tiles, (params.flags & kFmhaSharedKv) != 0};
    PageLoader<Traits> loader(params, work);
#pragma unroll 1
    for (int use = 0; use < order.count(); ++use) {
        const bool value = order.is_value(use);
        const int first = first_key(work, work.first_tile + order.tile(use), Traits::kKeys);
        const bool tail = (value || order.shared_kv) && first + Traits::kKeys > work.kv_len;
#pragma unroll
        for (int part = 0; part < Traits::kOutputParts; ++part) {
            const auto turn = ring_turn<Traits>(use, part);
            const uint32_t barrier = tail ? shared.kv_tail() : shared.kv_full(turn.slot);
            ptx::mbarrier_wait(shared.kv_empty(turn.slot), turn.parity ^ 1);
            if (ptx::elect_one()) {
                ptx::mbarrier_arrive_expect_tx(barrier, Traits::kPartBytes);
            }
            __syncwarp();
            loader.load(work, value ? params.v : params.k, shared.kv(turn.slot), barrier, first, part, !value, policy);
            __syncwarp();
            if (tail) {
                clear_tail<Traits>(work, shared, turn.slot, first, part);
            }
        }
    }
}

// By the whole warp.
template <class Traits, bool ByHead>
__device__ __forceinline__ void load_role(const FmhaParams& params, const Work& work, SharedMap<Traits> shared) {
    load_query<Traits, ByHead>(params, work, shared);
    int outer = ByHead ? work.plane.entry : work.batch;
    if (ByHead && packed_keys(params)) {
        outer = params.cu_seqlens_k[work.plane.entry];
    }
    // K and V are worth keeping where other CTAs read them too: those of the other query rows.
    const uint64_t policy = gridDim.x > 1 ? ptx::policy_evict_last() : ptx::policy_evict_first();
    const RingOrder order{work.tiles, (params.flags & kFmhaSharedKv) != 0};
#pragma unroll 1
    for (int use = 0; use < order.count(); ++use) {
#pragma unroll
        for (int part = 0; part < Traits::kOutputParts; ++part) {
            load_part<Traits, ByHead>(params, work, outer, shared, order, use, part, policy);
        }
    }
}

}  // namespace fmha
