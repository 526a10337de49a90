// Fused attention forward for sm_90a: a CTA computes `rows` query rows against its split's key tiles.
//
// Warpgroups, each with one role for the whole kernel: consumers (2 or 3), then one producer, of which a single warp
// works. docs/hopper.md has the shapes, the ring and the barriers; launch.h how to launch.
#include <stdint.h>

#include "../common/tiles.cuh"
#include "../sm100/ptx/mbarrier.cuh"
#include "../sm100/ptx/shared.cuh"
#include "../sm100/ptx/tma.cuh"
#include "../sm100/ptx/warp.cuh"
#include "fmha_params.h"
#include "ptx/cluster.cuh"
#include "ptx/control.cuh"
#include "traits.cuh"

#include "consumer.cuh"
#include "epilogue.cuh"
#include "producer.cuh"

namespace fmha::sm90 {

// A full barrier has one arrival, the producer's; an empty one an arrival from each consumer warp of every CTA that
// shares the loads.
template <class T>
__device__ __forceinline__ void init_barriers(SharedMap<T> shared, int width) {
    ptx::mbarrier_init(shared.query_full(), 1);
    for (int slot = 0; slot < T::kSlots; ++slot) {
        ptx::mbarrier_init(shared.full(slot), 1);
        ptx::mbarrier_init(shared.empty(slot), 4 * T::kConsumers * width);
    }
    for (int unit = 0; unit < T::kUnits; ++unit) {
        ptx::mbarrier_init(shared.tail(unit), 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    ptx::fence_proxy_async();
}

template <class T>
__device__ __forceinline__ void forward(const FmhaParams& params, uint32_t dynamic_shared) {
    const SharedMap<T> shared{(dynamic_shared + 1023) & ~1023u};
    const Place<T> place(params, ptx::cluster_width(), ptx::cluster_height(), ptx::cluster_rank());
    const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0);
    const bool alone = ptx::cluster_size() == 1;
    const bool merge = place.height > 1;

    if (warp == 4 * T::kConsumers && ptx::elect_one()) {
        ptx::prefetch_tensor_map(params.q);
        ptx::prefetch_tensor_map(params.k);
        init_barriers<T>(shared, place.width);
        load_query<T>(params, shared, place);
    }
    __syncwarp();
    if (alone) {
        __syncthreads();
    } else {
        ptx::cluster_meet();
    }
    ptx::launch_dependents();

    if (warp >= 4 * T::kConsumers) {
        ptx::keep_registers<T::kProducerRegisters>();
        if (warp == 4 * T::kConsumers) {
            producer_role<T>(params, shared, place);
        }
        __syncwarp();
        if (merge) {
            ptx::cluster_sync();
        } else if (!alone) {
            ptx::cluster_meet();
        }
    } else {
        ptx::take_registers<T::kRegisters>();
        Consumer<T> consumer(params, shared, place);
        consumer.run();
        finish_sums(consumer);
        if (merge) {
            publish_part(consumer);
            __syncwarp();
            ptx::cluster_sync();
            merge_parts<T>(params, shared, place);
            __syncwarp();
        } else {
            store_rows(consumer);
            __syncwarp();
            if (!alone) {
                ptx::cluster_meet();
            }
        }
        __syncwarp();
    }
    // No CTA leaves while another may still read its shared memory.
    if (merge) {
        ptx::cluster_meet();
    }
}

}  // namespace fmha::sm90

#define FMHA_JOIN_(a, b) a##b
#define FMHA_JOIN(a, b) FMHA_JOIN_(a, b)

extern "C" __global__ void __launch_bounds__(fmha_sm90_threads(FMHA_HEAD_DIM), 1)
    FMHA_JOIN(fmha_fwd_sm90_hd, FMHA_HEAD_DIM)(const __grid_constant__ FmhaParams params) {
    extern __shared__ __align__(1024) uint8_t dynamic_shared[];
    fmha::sm90::forward<fmha::sm90::Traits<FMHA_HEAD_DIM>>(params, fmha::ptx::shared_address(dynamic_shared));
}
