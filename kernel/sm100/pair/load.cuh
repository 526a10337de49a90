// Warp 5 of both CTAs: TMA fills Q, once a row tile, and the ring of parts of K and V. A CTA loads its own rows of Q,
// its own half of a tile's keys of K, and of V its half of each accumulator's columns. The bytes of both are counted by
// the leader's barriers, since its MMA reads both.
#pragma once

#include <stdint.h>

#include "common/ptx/grid.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/warp.cuh"
#include "sm100/pair/shared.cuh"
#include "sm100/pair/tiles.cuh"
#include "sm100/ptx/tma_pair.cuh"

namespace fmha {

template <class Traits, bool ByHead>
struct PairLoader {
    const FmhaParams& params;
    PairShared<Traits> shared;
    int rank;
    uint64_t policy;  // of K and V
    KeyTiles<Traits> keys, values;
    RingPlace<Traits::kSlots> ring;  // K0, K1, V0, K2, V1, ..., of all row tiles
    uint32_t queries = 0;            // that were loaded

    __device__ PairLoader(const FmhaParams& params, PairShared<Traits> shared, int rank,
                          const RowTiles<Traits>& row_tiles)
        : params(params),
          shared(shared),
          rank(rank),
          policy(params.t * params.heads > Traits::kRowTile ? ptx::policy_evict_last() : ptx::policy_evict_first()),
          keys{row_tiles},
          values{row_tiles} {}

    // The leader's barrier waits for the bytes of both CTAs. Those of the other may come before: the phase waits for
    // this arrival.
    __device__ void expect(uint32_t barrier, uint32_t bytes) {
        if (rank == 0 && ptx::elect_one()) {
            ptx::mbarrier_arrive_expect_tx(barrier, Traits::kCtas * bytes);
        }
        __syncwarp();
    }

    // The columns of Q that part `part` of K has, once the row tile before has its last scores of them. By the whole
    // warp: there are as many boxes as rows where a group of heads is odd.
    __device__ void load_query(const Work& own, int part) {
        ptx::mbarrier_wait(shared.query_empty(part), (queries & 1) ^ 1);  // the first time it counts as empty
        expect(shared.query_full(part), Traits::kQueryPartBytes);
        const uint32_t full = of_leader(shared.query_full(part));
        const uint64_t once = ptx::policy_evict_first();
        const bool packed = packed_queries(params);
        const int entry = own.plane.entry, before = packed ? params.cu_seqlens_q[entry] : 0;
        for (int c = part * Traits::kPartChunks; c < (part + 1) * Traits::kPartChunks; ++c) {
            const uint32_t chunk = shared.query() + c * Traits::kRowChunkBytes;
            const int element = c * Traits::kChunkElements, step = params.query_box;
            if constexpr (ByHead) {
                for (int row = threadIdx.x % 32 * step; row < Traits::kRows; row += 32 * step) {
                    const int of = own.first_row + row;
                    ptx::tma_pair_load_5d(chunk + row * Traits::kChunkRowBytes, params.q, full, element,
                                          of % params.heads, before + of / params.heads, own.plane.kv_head,
                                          packed ? 0 : entry, once);
                }
            } else if (ptx::elect_one()) {
                ptx::tma_pair_load_3d(chunk, params.q, full, element, own.first_row, own.batch, once);
            }
        }
        __syncwarp();
    }

    // A box: 64 columns of head_dim of as many keys as a CTA has of K.
    __device__ void load_box(const Work& work, const FmhaTensorMap& map, uint32_t to, uint32_t full, int element,
                             int key) {
        if constexpr (ByHead) {
            const int outer = packed_keys(params) ? params.cu_seqlens_k[work.plane.entry] : work.plane.entry;
            ptx::tma_pair_load_4d(to, map, full, element, key, work.plane.kv_head, outer, policy);
        } else {
            ptx::tma_pair_load_3d(to, map, full, element, key, work.batch, policy);
        }
    }

    // Once the next slot is empty, which it counts as the first time round.
    __device__ void wait_for_slot() { ptx::mbarrier_wait(shared.kv_empty(ring.slot), ring.parity ^ 1); }

    // A part, into the next slot: 128 columns of head_dim from `element` on, of as many keys as a CTA has of K.
    __device__ void load_part(const Work& work, const FmhaTensorMap& map, int element, int key) {
        wait_for_slot();
        expect(shared.kv_full(ring.slot), Traits::kPartBytes);
        if (ptx::elect_one()) {
#pragma unroll
            for (int chunk = 0; chunk < Traits::kPartChunks; ++chunk) {
                load_box(work, map, shared.kv(ring.slot) + chunk * Traits::kKeyChunkBytes,
                         of_leader(shared.kv_full(ring.slot)), element + chunk * Traits::kChunkElements, key);
            }
        }
        __syncwarp();
        ring.advance();
    }

    __device__ int first_key_of(const KeyTiles<Traits>& at) const {
        return first_key(at.work, at.work.first_tile + at.tile, Traits::kKeys);
    }

    // K of the next tile. Of a pair's first tile Q goes part by part with it, so that the scores begin with the first
    // parts; of the first of a later row tile Q comes behind K, since it waits for the last scores of the one before.
    // False if there is no tile left.
    __device__ bool load_keys() {
        if (!keys.next(params)) {
            return false;
        }
        const int key = first_key_of(keys) + rank * Traits::kCtaKeys;
        const bool beside = queries == 0;
        if (beside) {
            ptx::wait_for_primary();
        }
        const Work own = of_cta<Traits>(keys.work, rank);
        for (int part = 0; part < Traits::kParts; ++part) {
            load_part(keys.work, params.k, part * Traits::kCtaColumns, key);
            if (beside) {
                load_query(own, part);
            }
        }
        if (keys.first()) {
            for (int part = 0; part < Traits::kParts && !beside; ++part) {
                load_query(own, part);
            }
            queries += 1;
        }
        return true;
    }

    __device__ void load_values() {
        const FmhaTensorMap& map = params.flags & kFmhaSharedKv ? params.k : params.v;
        const int key = first_key_of(values);
        for (int part = 0; part < Traits::kParts; ++part) {
            const int accumulator = part / Traits::kCtas, half = part % Traits::kCtas;
            load_part(values.work, map, accumulator * Traits::kOutputN + rank * Traits::kCtaColumns,
                      key + half * Traits::kCtaKeys);
        }
    }
};

// By the whole warp.
template <class Traits, bool ByHead>
__device__ __forceinline__ void pair_load_role(const FmhaParams& params, PairShared<Traits> shared, int rank,
                                               const RowTiles<Traits>& row_tiles) {
    PairLoader<Traits, ByHead> loader(params, shared, rank, row_tiles);
    bool more = loader.load_keys() && loader.load_keys();
#pragma unroll 1
    while (loader.values.next(params)) {
        loader.load_values();
        more = more && loader.load_keys();
    }
    // No arrival may come after the CTA has gone: every slot that was filled is empty again, and so is Q.
#pragma unroll 1
    for (int slot = 0; slot < Traits::kSlots; ++slot) {
        loader.wait_for_slot();
        loader.ring.advance();
    }
    for (int part = 0; part < Traits::kParts && loader.queries > 0; ++part) {
        ptx::mbarrier_wait(shared.query_empty(part), (loader.queries - 1) & 1);
    }
}

}  // namespace fmha
