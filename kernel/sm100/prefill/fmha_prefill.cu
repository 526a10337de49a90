// Fused attention forward for sm_100a where there are many rows: a CTA goes through row tiles of 256 query rows, two
// query tiles of 128, A and B, whose products and softmaxes take turns.
//
// Sixteen warps, each with one role for the whole kernel:
//   0-3    softmax of A (softmax.cuh)
//   4-7    softmax of B
//   8-11   epilogue of both (epilogue.cuh)
//   12     MMA of A: one lane issues S = Q K^T and O += P V (mma.cuh)
//   13     MMA of B
//   14     TMA: fills Q and the ring of K and V (load.cuh)
//   15     none: a warpgroup's register budget is set by all of its warps
//
// order.cuh says which row tiles a CTA has. docs/understand/prefill.md has the maps and the barrier table.
//
// Built once a head_dim: -DFMHA_HEAD_DIM=64|128 -DFMHA_ENTRY=name.
#define FMHA_KV_HEADS 1
#define FMHA_PAGED 1

#include <stdint.h>

#include "common/ptx/grid.cuh"
#include "common/ptx/registers.cuh"
#include "common/ptx/shared.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/warp.cuh"
#include "common/work.cuh"
#include "fmha_params.h"
#include "sm100/prefill/epilogue.cuh"
#include "sm100/prefill/load.cuh"
#include "sm100/prefill/mma.cuh"
#include "sm100/prefill/shared.cuh"
#include "sm100/prefill/softmax.cuh"
#include "sm100/prefill/traits.cuh"
#include "sm100/ptx/tcgen05.cuh"
#include "sm100/teardown.cuh"

namespace fmha {

constexpr int kEpilogueGroup = 2;  // of warpgroups: 0 and 1 are the softmax of A and of B
constexpr int kMmaWarp = 12;       // and the next one
constexpr int kTmaWarp = 14;

// Registers of a thread, by warpgroup: together the SM's 65536.
constexpr int kSoftmaxRegisters = 192;
constexpr int kEpilogueRegisters = 64;
constexpr int kIssueRegisters = 64;
static_assert(128 * (2 * kSoftmaxRegisters + kEpilogueRegisters + kIssueRegisters) <= 65536);

template <class Traits>
__device__ __forceinline__ void issue_roles(const FmhaParams& params, PrefillShared<Traits> shared, uint32_t tmem,
                                            int warp) {
    if (warp < kTmaWarp) {
        if (ptx::elect_one()) {
            prefill_mma_role<Traits>(params, shared, tmem, warp - kMmaWarp);
        }
    } else if (warp == kTmaWarp && by_head(params)) {
        prefill_load_role<Traits, true>(params, shared);
    } else if (warp == kTmaWarp) {
        prefill_load_role<Traits, false>(params, shared);
    }
}

template <class Traits>
__device__ __forceinline__ void prefill(const FmhaParams& params, uint32_t shared_base) {
    constexpr uint32_t kAlignment = kFmhaSharedAlignment;
    const PrefillShared<Traits> shared{{(shared_base + kAlignment - 1) & ~(kAlignment - 1)}};
    const int warp = threadIdx.x / 32, group = warp / 4;
    ptx::launch_dependents();

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
    ptx::wait_for_primary();  // what comes before it reads no tensor: it goes beside the grid before this one

    if (group < kEpilogueGroup) {
        ptx::take_registers<kSoftmaxRegisters>();
        prefill_softmax_role<Traits>(params, shared, tmem, group);
    } else if (group == kEpilogueGroup) {
        ptx::keep_registers<kEpilogueRegisters>();
        epilogue_role<Traits>(params, shared, tmem);
    } else {
        ptx::keep_registers<kIssueRegisters>();
        issue_roles<Traits>(params, shared, tmem, warp);
    }
    __syncwarp();

    give_tmem_back(warp == kMmaWarp, [] { __syncthreads(); }, [&] { ptx::tmem_dealloc(tmem, Traits::kTmemColumns); });
}

}  // namespace fmha

extern "C" __global__ void __launch_bounds__(kFmhaSm100PrefillThreads, 1)
    FMHA_ENTRY(const __grid_constant__ FmhaParams params) {
    extern __shared__ __align__(1024) uint8_t dynamic_shared[];
    fmha::prefill<fmha::PrefillTraits<FMHA_HEAD_DIM>>(params, fmha::ptx::shared_address(dynamic_shared));
}
