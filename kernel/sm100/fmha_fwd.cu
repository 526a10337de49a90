// Fused attention forward for sm_100a: one CTA computes 128 query rows (64 at head_dim 512, or fewer where a variant is
// of few) against its range of the tiles of keys that those rows see.
//
// Six warps, each with one role for the whole kernel:
//   0-3  softmax and epilogue (softmax_role.cuh)
//   4    MMA: one lane issues S_j = Q K_j^T and O += P_j V_j (mma.cuh)
//   5    TMA: fills Q and the ring of K and V (load.cuh)
//
// S and P are double-buffered, so that S_{j+1} is computed while the softmax works on S_j, and P_j is stored while
// P_{j-1} V_{j-1} runs. docs/understand/kernel.md has the maps and the barrier table.
//
// The module has the combine kernels as well, for launches with splits: for few and for many, by kFmhaByHead.
//
// Built once a variant: -DFMHA_HEAD_DIM=64|128|256|512 -DFMHA_P_IN_SHARED=0|1 -DFMHA_ENTRY=name, and with
// -DFMHA_ROWS=32|64 one of fewer query rows.
#define FMHA_KV_HEADS 1
#define FMHA_PAGED 1
#ifndef FMHA_ROWS
#define FMHA_ROWS 0  // the head_dim's own
#endif
// Not of the kernel that the guard runs first: none of its calls has lengths to balance that one of fewer rows has not.
#define FMHA_BALANCES (FMHA_HEAD_DIM > 64 || FMHA_ROWS > 0)

#include <stdint.h>

#include "common/ptx/grid.cuh"
#include "common/ptx/shared.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/warp.cuh"
#include "common/work.cuh"
#include "fmha_params.h"
#include "load.cuh"
#include "mma.cuh"
#include "portions.cuh"
#include "ptx/tcgen05.cuh"
#include "shared_map.cuh"
#include "softmax_role.cuh"
#include "teardown.cuh"
#include "traits.cuh"

namespace fmha {

constexpr int kMmaWarp = 4;
constexpr int kTmaWarp = 5;

// The maps of a branch that is empty may hold anything.
__device__ __forceinline__ void prefetch_tensor_maps(const FmhaParams& params, const Work& work) {
    const bool value = !(params.flags & kFmhaSharedKv);
    ptx::prefetch_tensor_map(params.q);
    if (work.dense_tiles > 0 || balanced(params)) {
        ptx::prefetch_tensor_map(params.k);
        if (value) {
            ptx::prefetch_tensor_map(params.v);
        }
    }
    if (work.entries > 0) {
        ptx::prefetch_tensor_map(params.sparse_k);
        if (value) {
            ptx::prefetch_tensor_map(params.sparse_v);
        }
    }
}

// A CTA whose rows see no key stores the empty row; no barrier, no TMEM.
template <class Traits>
__device__ __forceinline__ void store_empty_rows(const FmhaParams& params, const Work& work) {
    if (threadIdx.x < Traits::kSoftmaxThreads) {
        store_row<Traits>(params, work, SoftmaxThread<Traits>(params, work, 0), RowState{});
    }
}

template <class Traits>
__device__ __forceinline__ void forward(const FmhaParams& params, uint32_t shared_base) {
    ptx::launch_dependents();
    if (!balanced(params) && work_in_memory(params)) {
        ptx::wait_for_primary();
    }
    Work work =
        balanced(params) ? Work{} : make_work(params, Traits::kRows, Traits::kKeys, blockIdx.x, blockIdx.y, blockIdx.z);
    if (!balanced(params) && work.rows <= 0) {
        return;
    }
    if (!balanced(params) && work.tiles == 0) {
        ptx::wait_for_primary();
        store_empty_rows<Traits>(params, work);
        return;
    }
    constexpr uint32_t kAlignment = kFmhaSharedAlignment;
    const SharedMap<Traits> shared{(shared_base + kAlignment - 1) & ~(kAlignment - 1)};
    const int warp = threadIdx.x / 32;

    if (warp == kMmaWarp) {
        ptx::tmem_alloc(shared.tmem_address(), Traits::kTmemColumns);
        ptx::tmem_relinquish_alloc_permit();
    } else if (warp == kTmaWarp && ptx::elect_one()) {
        prefetch_tensor_maps(params, work);
        init_barriers<Traits>(shared);
    }
    __syncwarp();
    // Publishes the barriers and the TMEM address to every warp. Allocation is synchronous, so no tcgen05 fence is due.
    __syncthreads();
    const uint32_t tmem = ptx::load_shared(shared.tmem_address());
    ptx::wait_for_primary();  // what comes before it reads no tensor: it goes beside the grid before this one
    if (balanced(params)) {   // by lengths, which may be read now
        const Portion portion = portion_of<Traits::kKeys>(params, blockIdx.y, gridDim.y);
        work = portion_work(params, Traits::kRows, Traits::kKeys, blockIdx.x, portion);
        tell_merge(params, portion);
    }

    if (balanced(params) && work.tiles == 0) {
        if (work.rows > 0) {
            store_empty_rows<Traits>(params, work);
        }
    } else if (warp == kTmaWarp) {
        if (in_pages(params)) {
            load_pages_role<Traits>(params, work, shared);
        } else if (by_head(params)) {
            load_role<Traits, true>(params, work, shared);
        } else {
            load_role<Traits, false>(params, work, shared);
        }
    } else if (warp == kMmaWarp) {
        if (ptx::elect_one()) {
            mma_role<Traits>(params, shared, tmem, work.tiles);
        }
    } else {
        softmax_role<Traits>(params, work, shared, tmem);
    }
    __syncwarp();

    give_tmem_back(warp == kMmaWarp, [] { __syncthreads(); }, [&] { ptx::tmem_dealloc(tmem, Traits::kTmemColumns); });
}

}  // namespace fmha

using Forward = fmha::FmhaTraits<FMHA_HEAD_DIM, FMHA_P_IN_SHARED, FMHA_ROWS>;

#include "combine_entries.cuh"  // for Forward

extern "C" __global__ void __launch_bounds__(kFmhaSm100Threads, Forward::kCtasPerSm)
    FMHA_ENTRY(const __grid_constant__ FmhaParams params) {
    extern __shared__ __align__(1024) uint8_t dynamic_shared[];
    fmha::forward<Forward>(params, fmha::ptx::shared_address(dynamic_shared));
}
