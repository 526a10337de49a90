// Warp 14: TMA fills Q, once a row tile, and the ring of K and V tiles.
#pragma once

#include <stdint.h>

#include "sm100/load.cuh"
#include "sm100/prefill/row_tiles.cuh"
#include "sm100/prefill/shared.cuh"

namespace fmha {

// Keys [key, key + kKeys) into the ring's slot for use `use`.
template <class Traits, bool ByHead>
__device__ __forceinline__ void load_use(const Work& work, int outer, const FmhaTensorMap& map,
                                         PrefillShared<Traits> shared, int use, int key, uint64_t policy) {
    const Turn<Traits::kStages> turn(use);
    ptx::mbarrier_wait(shared.kv_empty(turn.slot), turn.parity ^ 1);  // the first time round it counts as empty
    if (ptx::elect_one()) {
        ptx::mbarrier_arrive_expect_tx(shared.kv_full(turn.slot), Traits::kKvTileBytes);
        load_dense<Traits, ByHead>(work, outer, map, shared.kv(turn.slot), shared.kv_full(turn.slot), key, 0, policy);
    }
    __syncwarp();
}

// By the whole warp.
template <class Traits, bool ByHead>
__device__ __forceinline__ void prefill_load_role(const FmhaParams& params, PrefillShared<Traits> shared) {
    const uint64_t policy = ptx::policy_evict_last();
    RowTiles<Traits> row_tiles;
    Work work;
    int use = 0;  // of the ring, in RingOrder's order: K0, K1, V0, K2, V1, ..., V(n-1), and the next row tile's
    uint32_t queries = 0;  // that were loaded
#pragma unroll 1
    while (row_tiles.next_with_keys(params, work)) {
        int outer = ByHead ? work.plane.entry : work.batch;
        if (ByHead && packed_keys(params)) {
            outer = params.cu_seqlens_k[work.plane.entry];
        }
        int key = first_key(work, 0, Traits::kKeys);
        load_use<Traits, ByHead>(work, outer, params.k, shared, use++, key, policy);
        ptx::mbarrier_wait(shared.query_empty(), (queries++ & 1) ^ 1);
        load_query<Traits, ByHead>(params, work, shared);
#pragma unroll 1
        for (int j = 1; j < work.tiles; ++j) {
            load_use<Traits, ByHead>(work, outer, params.k, shared, use++, key + Traits::kKeys, policy);
            load_use<Traits, ByHead>(work, outer, params.v, shared, use++, key, policy);
            key += Traits::kKeys;
        }
        load_use<Traits, ByHead>(work, outer, params.v, shared, use++, key, policy);
    }
    // No arrival may come after the CTA has gone: every slot that was filled is empty again, and so is Q.
#pragma unroll 1
    for (int last = use > Traits::kStages ? use - Traits::kStages : 0; last < use; ++last) {
        const Turn<Traits::kStages> turn(last);
        ptx::mbarrier_wait(shared.kv_empty(turn.slot), turn.parity);
    }
    if (queries > 0) {
        ptx::mbarrier_wait(shared.query_empty(), (queries - 1) & 1);
    }
}

}  // namespace fmha
