// Fused attention forward for sm_90a: a CTA computes `rows` query rows against its split's key tiles.
//
// roles.cuh has the table of warps and their roles, barriers.cuh that of barriers, policy.cuh what a build is made to
// do. docs/understand/hopper.md has the shapes and the ring; launch.h how to launch.
#include <stdint.h>

#include "combine_many.cuh"
#include "common/ptx/shared.cuh"
#include "consume.cuh"
#include "fmha_params.h"
#include "produce.cuh"
#include "ptx/control.cuh"
#include "roles.cuh"

namespace fmha::sm90 {

// By warp `warp` of the loading warpgroup.
template <class T>
__device__ __forceinline__ void load_roles(const FmhaParams& params, SharedMap<T> shared, int warp) {
    if (warp < LoadingWarps<T>::kProducers) {
        if constexpr (T::kWalks) {
            produce_all(params, shared);
        } else {
            produce<T>(params, shared, warp);
        }
    } else if (warp == LoadingWarps<T>::kPreparer) {
        prepare<T>(params, shared);
        if constexpr (T::kPolicy.tail_warp) {
            clear_tails(shared);
        }
    } else if (LoadingWarps<T>::kHasOrderer && warp == LoadingWarps<T>::kOrderer) {
        order_role(params, shared);
    }
}

template <class T>
__device__ __forceinline__ void forward(const FmhaParams& params, uint32_t dynamic_shared) {
    if (!T::kWalks && int(blockIdx.x) * tile_rows<T>(params) >= params.t * params.heads) {
        return;  // fmha_query_blocks counts whole queries where there is a sparse branch; here rows are not cut there
    }
    const SharedMap<T> shared{(dynamic_shared + 1023) & ~1023u};
    const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0);
    // Launched to overlap the grid before, this one comes so far while that one runs; each role waits for it before it
    // touches what that one may read or write.
    if (warp >= 4 * T::kConsumers) {
        stamp<kEntered>(threadIdx.x == T::kConsumerThreads);
        ptx::keep_registers<T::kProducerRegisters>();
        load_roles<T>(params, shared, warp - 4 * T::kConsumers);
    } else {
        ptx::take_registers<T::kRegisters>();
        consume<T>(params, shared, warp / 4);
    }
}

}  // namespace fmha::sm90

#define FMHA_JOIN_(a, b) a##b
#define FMHA_JOIN(a, b) FMHA_JOIN_(a, b)

extern "C" __global__ void __launch_bounds__(fmha_sm90_threads(FMHA_HEAD_DIM),
                                             fmha_sm90_launch(FMHA_HEAD_DIM).ctas_per_sm)
    FMHA_JOIN(fmha_fwd_sm90_hd, FMHA_HEAD_DIM)(const __grid_constant__ FmhaParams params) {
    extern __shared__ __align__(1024) uint8_t dynamic_shared[];
    fmha::sm90::forward<fmha::sm90::Traits<FMHA_HEAD_DIM>>(params, fmha::ptx::shared_address(dynamic_shared));
}

extern "C" __global__ void __launch_bounds__(kFmhaCombineThreads)
    fmha_combine_sm90(const __grid_constant__ FmhaParams params) {
    fmha::sm90::combine<FMHA_HEAD_DIM, false>(params);
}

extern "C" __global__ void __launch_bounds__(kFmhaCombineThreads)
    fmha_combine_sm90_many(const __grid_constant__ FmhaParams params) {
    fmha::sm90::combine_many<FMHA_HEAD_DIM, false>(params);
}

// Behind balanced splits.
#if FMHA_SM90_BALANCES
extern "C" __global__ void __launch_bounds__(kFmhaCombineThreads)
    fmha_combine_sm90_balanced(const __grid_constant__ FmhaParams params) {
    fmha::sm90::combine<FMHA_HEAD_DIM, true>(params);
}

extern "C" __global__ void __launch_bounds__(kFmhaCombineThreads)
    fmha_combine_sm90_many_balanced(const __grid_constant__ FmhaParams params) {
    fmha::sm90::combine_many<FMHA_HEAD_DIM, true>(params);
}
#endif
