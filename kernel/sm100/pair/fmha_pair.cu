// Fused attention forward for sm_100a at head_dim 256 and 512: a pair of CTAs, on two multiprocessors, computes row
// tiles of 256 or 128 query rows, half of them each, and loads each key and value once for all of them.
//
// Six warps a CTA, each with one role for the whole kernel:
//   0-3  softmax and epilogue of the CTA's rows (softmax.cuh)
//   4    MMA, of the first CTA: one lane issues the products of both, cta_group::2 (mma.cuh)
//   5    TMA: fills the CTA's share of Q and of the ring of K and V (load.cuh)
//
// A pair goes through row tiles, by order.cuh, of its range of the tiles of keys, by splits. docs/understand/pair.md
// has the maps and the barrier table.
//
// The module has the combine kernels as well, for launches with splits.
//
// Built once a shape: -DFMHA_HEAD_DIM=256|512 -DFMHA_ROWS=128|256, of a row tile, -DFMHA_ENTRY=name.
#define FMHA_KV_HEADS 1
#define FMHA_PAGED 1
#define FMHA_BALANCES 1

#include <stdint.h>

#include "common/ptx/cluster.cuh"
#include "common/ptx/grid.cuh"
#include "common/ptx/shared.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/warp.cuh"
#include "common/work.cuh"
#include "fmha_params.h"
#include "sm100/pair/load.cuh"
#include "sm100/pair/mma.cuh"
#include "sm100/pair/shared.cuh"
#include "sm100/pair/softmax.cuh"
#include "sm100/pair/traits.cuh"
#include "sm100/portions.cuh"
#include "sm100/ptx/tcgen05.cuh"
#include "sm100/ptx/tcgen05_pair.cuh"
#include "sm100/teardown.cuh"

namespace fmha {

constexpr int kMmaWarp = 4;
constexpr int kTmaWarp = 5;

template <class Traits>
__device__ __forceinline__ void forward(const FmhaParams& params, uint32_t shared_base) {
    constexpr uint32_t kAlignment = kFmhaSharedAlignment;
    const PairShared<Traits> shared{{(shared_base + kAlignment - 1) & ~(kAlignment - 1)}};
    const int warp = threadIdx.x / 32, rank = ptx::cluster_rank();
    ptx::launch_dependents();

    if (warp == kTmaWarp && ptx::elect_one()) {
        ptx::prefetch_tensor_map(params.q);
        ptx::prefetch_tensor_map(params.k);
        init_barriers<Traits>(shared);
    }
    __syncwarp();
    // Publishes the barriers to both CTAs, and says that the other one is there, with which tensor memory is allocated.
    ptx::cluster_sync();
    if (warp == kMmaWarp) {
        ptx::tmem_pair_alloc(shared.tmem_address(), Traits::kTmemColumns);
        ptx::tmem_pair_relinquish_alloc_permit();
    }
    __syncthreads();  // publishes the TMEM address to every warp
    const uint32_t tmem = ptx::load_shared(shared.tmem_address());
    // What a pair has is found beside the grid before this one where no tensor says it. Each role waits for that grid
    // before it touches a tensor.
    if (balanced(params) || work_in_memory(params)) {
        ptx::wait_for_primary();
    }
    RowTiles<Traits> row_tiles;
    if (balanced(params)) {
        row_tiles.portion = portion_of<Traits::kKeys>(params, blockIdx.y, gridDim.y);
        tell_merge(params, row_tiles.portion);
    }

    if (warp == kTmaWarp && by_head(params)) {
        pair_load_role<Traits, true>(params, shared, rank, row_tiles);
    } else if (warp == kTmaWarp) {
        pair_load_role<Traits, false>(params, shared, rank, row_tiles);
    } else if (warp == kMmaWarp) {
        if (rank == 0 && ptx::elect_one()) {
            pair_mma_role<Traits>(params, shared, tmem, row_tiles);
        }
    } else {
        pair_softmax_role<Traits>(params, shared, tmem, rank, row_tiles);
    }
    __syncwarp();

    // Neither CTA goes while the other may arrive at its barriers or read its operands.
    give_tmem_back(
        warp == kMmaWarp, [] { ptx::cluster_sync(); }, [&] { ptx::tmem_pair_dealloc(tmem, Traits::kTmemColumns); });
}

}  // namespace fmha

using Forward = fmha::PairTraits<FMHA_HEAD_DIM, FMHA_ROWS / kFmhaSm100PairCtas>;

#include "sm100/combine_entries.cuh"  // for Forward

extern "C" __global__ void __launch_bounds__(kFmhaSm100Threads, 1)
    FMHA_ENTRY(const __grid_constant__ FmhaParams params) {
    extern __shared__ __align__(1024) uint8_t dynamic_shared[];
    fmha::forward<Forward>(params, fmha::ptx::shared_address(dynamic_shared));
}
