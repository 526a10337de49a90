// Fused attention forward for sm_90a: a CTA computes `rows` query rows against its split's key tiles.
//
// Warpgroups, each with one role for the whole kernel: consumers, then one producer, of which a single warp
// works. docs/hopper.md has the shapes, the ring and the barriers; launch.h how to launch.
#include <stdint.h>

#include "common/ptx/mbarrier.cuh"
#include "common/ptx/shared.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/warp.cuh"
#include "fmha_params.h"
#include "ptx/cluster.cuh"
#include "ptx/control.cuh"
#include "tiles.cuh"
#include "traits.cuh"

#include "alternate.cuh"
#include "clocks.cuh"
#include "epilogue.cuh"
#include "producer.cuh"
#include "rounds.cuh"

namespace fmha::sm90 {

// By one thread, in a row: Hopper's barrier instructions take their address from a uniform register, and a lane each
// would take turns at 80 cycles. A full barrier has one arrival, the producer's; an empty one an arrival from each
// consumer warp of every CTA that shares the loads; what column groups hand over, one from each warp of the group.
template <class T, int First, int End>
__device__ __forceinline__ void init_barriers(SharedMap<T> shared, int width) {
    const int readers = 4 * T::kConsumers / T::kRings * (T::kShares ? width : 1);
#pragma unroll
    for (int i = First; i < End; ++i) {
        const bool empty = i >= T::kEmpty && i < T::kTail;
        ptx::mbarrier_init(shared.barrier(i), empty ? readers : i < T::kHanded ? 1 : 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    ptx::fence_proxy_async();
}

// Q's barrier and those of the first tile's K, which come first where no other CTA takes part.
template <class T>
constexpr int kFirstBarriers = T::kEarly ? T::kFull + T::kUnits : T::kBarriers;

// Loads start as early as they can: K and V before the consumers have gathered, unless other CTAs take part in them.
template <class T>
__device__ __forceinline__ void produce(const FmhaParams& params, SharedMap<T> shared, const Place<T>& place, int ring,
                                        bool alone) {
    const auto meet = [ring](bool alone) {  // the barriers are initialised, by the first producer
        if (!alone) {
            ptx::cluster_arrive();
        }
        if (ring == 0) {
            ptx::named_barrier_arrive(kStartBarrier, T::kMeetingThreads);
        } else {
            ptx::named_barrier_sync(kStartBarrier, T::kMeetingThreads);
        }
    };
    if (ring == 0 && ptx::elect_one()) {
        load_query<T>(params, shared, place);
    }
    stamp<kQueryIssued>(ring == 0 && threadIdx.x % 32 == 0);
    __syncwarp();
    if constexpr (!T::kEarly) {
        meet(alone);
    }
    Loads<T> loads(params, shared, place, ring);
    stamp<kLoadsReady>(ring == 0 && threadIdx.x % 32 == 0);
    if constexpr (T::kEarly) {
        if (place.width == 1 && loads.more) {
            loads.ahead = loads.producer.load_ahead(loads.keys.tile);
        }
        if (place.width == 1 && ptx::elect_one()) {
            init_barriers<T, kFirstBarriers<T>, T::kBarriers>(shared, 1);
        }
        __syncwarp();
        meet(alone);
    }
    if (place.width > 1) {
        ptx::cluster_wait();
    }
    if constexpr (T::kRings == 1) {
        producer_role<T>(params, loads);
    } else {
        group_producer_role<T>(params, loads, ring);
    }
    __syncwarp();
    if (!alone && place.width == 1) {
        ptx::cluster_wait();
    }
}

template <class T>
__device__ __forceinline__ void consume(const FmhaParams& params, SharedMap<T> shared, const Place<T>& place, int group,
                                        bool alone) {
    if (!alone) {
        ptx::cluster_arrive();
    }
    Consumer<T> consumer(params, shared, place, group);
    ptx::named_barrier_sync(kStartBarrier, T::kMeetingThreads);
    if (!alone) {
        ptx::cluster_wait();
    }
    stamp<kConsumersMet>(threadIdx.x == 0);
    if constexpr (T::kColumnGroups == 2) {
        run_alternating(consumer);
    } else if constexpr (T::kOverlap) {
        run_overlapped(consumer);
    } else {
        run_in_turn(consumer);
    }
    stamp<kLastProduct>(threadIdx.x == 0);
    float correction[2];
    finish_sums(consumer, correction);
    if (place.height > 1) {
        publish_part(consumer, correction);
        __syncwarp();
        ptx::cluster_sync();
        merge_parts<T>(params, shared, place);
    } else {
        store_rows(consumer, correction);
        stamp<kStored>(threadIdx.x == 0);
        if constexpr (kFmhaSm90MergeBy != kFmhaSm90Combine) {
            if (params.splits > 1) {
                merge_in_grid<T>(params, shared);
            }
        }
    }
    stamp<kMerged>(threadIdx.x == 0);
    __syncwarp();
}

template <class T>
__device__ __forceinline__ void forward(const FmhaParams& params, uint32_t dynamic_shared) {
    if (int(blockIdx.x) * T::kRows >= params.t * params.heads && ptx::cluster_width() == 1) {
        return;  // fmha_query_blocks counts whole queries where there is a sparse branch; here rows are not cut there
    }
    const SharedMap<T> shared{(dynamic_shared + 1023) & ~1023u};
    const int width = ptx::cluster_width(), height = ptx::cluster_height();
    const bool alone = width * height == 1;
    const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0);
    const bool producer_lane = threadIdx.x == 128 * T::kConsumers;
    stamp<kEntered>(producer_lane);
    if (warp == 4 * T::kConsumers && ptx::elect_one()) {
        if (T::kEarly && params.s_k > 0) {
            ptx::prefetch_tensor_map(params.k);
            if (!(params.flags & kFmhaSharedKv)) {
                ptx::prefetch_tensor_map(params.v);
            }
        }
        init_barriers<T, 0, kFirstBarriers<T>>(shared, width);
        if (T::kEarly && T::kShares && width > 1) {
            init_barriers<T, kFirstBarriers<T>, T::kBarriers>(shared, width);
        }
        ptx::prefetch_tensor_map(params.q);
    }
    __syncwarp();
    stamp<kBarriersReady>(producer_lane);
    // Launched to overlap the grid before, this one has come so far while that one ran; from here on it reads what that
    // one may have written.
    ptx::wait_for_primary();
    ptx::launch_dependents();
    stamp<kGridBeforeDone>(producer_lane);
    const Place<T> place(params, width, height);
    stamp<kPlaced>(producer_lane && place.length >= 0);
    if (warp >= 4 * T::kConsumers) {
        ptx::keep_registers<T::kProducerRegisters>();
        const int ring = warp - 4 * T::kConsumers;
        if (ring < T::kRings) {
            produce<T>(params, shared, place, ring, alone);
        } else if (!alone) {
            ptx::cluster_arrive();
            ptx::cluster_wait();
        }
        if (place.height > 1) {
            ptx::cluster_sync();
        }
    } else {
        ptx::take_registers<T::kRegisters>();
        consume<T>(params, shared, place, warp / 4, alone);
    }
    // No CTA leaves while another may still reach its shared memory.
    if (!alone) {
        ptx::cluster_arrive();
        ptx::cluster_wait();
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
    fmha::sm90::combine<FMHA_HEAD_DIM>(params);
}
