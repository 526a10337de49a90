// Warp 13: TMA fills Q, once a row tile, and the ring of K and V tiles.
#pragma once

#include <stdint.h>

#include "sm100/load.cuh"
#include "sm100/prefill/order.cuh"
#include "sm100/prefill/shared.cuh"

namespace fmha {

// Tile `use` of the row tile's order into the ring's slot for use `place` of the CTA.
template <class Traits, bool ByHead>
__device__ __forceinline__ void load_key_or_value(const FmhaParams& params, const Work& work, int outer,
                                                  PrefillShared<Traits> shared, const RingOrder& order, int use,
                                                  int place, uint64_t policy) {
    const Turn<Traits::kStages> turn(place);
    ptx::mbarrier_wait(shared.kv_empty(turn.slot), turn.parity ^ 1);  // the first time round it counts as empty
    if (ptx::elect_one()) {
        ptx::mbarrier_arrive_expect_tx(shared.kv_full(turn.slot), Traits::kKvTileBytes);
        load_dense<Traits, ByHead>(work, outer, order.is_value(use) ? params.v : params.k, shared.kv(turn.slot),
                                   shared.kv_full(turn.slot), first_key(work, order.tile(use), Traits::kKeys), policy);
    }
    __syncwarp();
}

// By the whole warp.
template <class Traits, bool ByHead>
__device__ __forceinline__ void prefill_load_role(const FmhaParams& params, PrefillShared<Traits> shared) {
    const uint64_t policy = ptx::policy_evict_last();
    RowTiles<Traits> row_tiles;
    Work work;
    int loaded = 0;    // tiles of K and V
    uint32_t rounds = 0;  // row tiles
#pragma unroll 1
    while (row_tiles.next_with_keys(params, work)) {
        int outer = ByHead ? work.plane.entry : work.batch;
        if (ByHead && packed_keys(params)) {
            outer = params.cu_seqlens_k[work.plane.entry];
        }
        const RingOrder order{work.tiles, false};
#pragma unroll 1
        for (int use = 0; use < order.count(); ++use) {
            load_key_or_value<Traits, ByHead>(params, work, outer, shared, order, use, loaded + use, policy);
            if (use == 0) {  // behind the first K, which is free to come while the last row tile is still multiplied
                ptx::mbarrier_wait(shared.query_empty(), (rounds & 1) ^ 1);
                load_query<Traits, ByHead>(params, work, shared);
            }
        }
        loaded += order.count();
        rounds += 1;
    }
    // No arrival may come after the CTA has gone: every slot that was filled is empty again, and so is Q.
#pragma unroll 1
    for (int place = loaded > Traits::kStages ? loaded - Traits::kStages : 0; place < loaded; ++place) {
        const Turn<Traits::kStages> turn(place);
        ptx::mbarrier_wait(shared.kv_empty(turn.slot), turn.parity);
    }
    if (rounds > 0) {
        ptx::mbarrier_wait(shared.query_empty(), (rounds - 1) & 1);
    }
}

}  // namespace fmha
