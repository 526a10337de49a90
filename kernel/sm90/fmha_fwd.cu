// Fused attention forward for sm_90a: a CTA computes `rows` query rows against its split's key tiles.
//
// Warpgroups, each with one role for the whole kernel: consumers, then one producer, a warp of it for each ring and one
// that initialises barriers and clears tails; another may look for row tiles. docs/understand/hopper.md has the shapes,
// the ring and the barriers; launch.h how to launch.
#include <stdint.h>

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
#include "combine_many.cuh"
#include "epilogue.cuh"
#include "order.cuh"
#include "producer.cuh"
#include "rounds.cuh"
#include "start.cuh"

namespace fmha::sm90 {

// Tells the consumers what is next, once they are done with the Q before. By one thread, which then completes
// query_full.
template <class T>
__device__ __forceinline__ void hand_over(const FmhaParams& params, const SharedMap<T>& shared, const Walk<T>& walk,
                                          const BalancedWalk<T>& balance, uint32_t parity) {
    ptx::mbarrier_wait(shared.query_empty(), parity);
    if (balanced<T>(params)) {
        tell(shared, balance, parity ^ 1);
    }
    tell(shared, walk);
}

// The row tiles behind the first. Each is drawn once the loads of the one before are under way, late enough for the
// CTAs that have most to do to draw least. K of the first tile comes before Q, which waits until the consumers are done
// with the Q before.
template <class T>
__device__ __forceinline__ void produce_further(const FmhaParams& params, SharedMap<T> shared, Walk<T>& walk,
                                                BalancedWalk<T>& balance, const Producer<T>& first) {
    Cursor<T> cursor = first.cursor;
    int tails = first.tails;
    const int ctas = walk.ctas(), all = T::kByLength ? 0 : walk.all(params);
    if (T::kByLength && !balanced<T>(params) && !Walk<T>::draws_packed(params)) {
        ptx::named_barrier_sync(kOrderBarrier, 64);
    }
#pragma unroll 1
    while (true) {
        const uint32_t parity = kPaged ? tails % 2 : walk.turn % 2;
        if constexpr (kPaged) {
            tails ^= 1;
        } else {
            ++walk.turn;
        }
        if (balanced<T>(params)) {
            balance.advance(params);
            walk.go_to(balance);
        } else if (T::kByLength) {
            ask(shared);
            take_next(shared, walk, Walk<T>::draws_packed(params) ? parity ^ 1 : parity);
        } else {
            walk.go_to(params, ctas < all ? draw(params, ctas, all) : all);
        }
        if (walk.row_tile < 0) {
            if (ptx::elect_one()) {
                hand_over(params, shared, walk, balance, parity);
                ptx::mbarrier_arrive(shared.query_full());
            }
            __syncwarp();
            end_tails(shared, tails);
            return;
        }
        const Place<T> place(params, walk, 1, 1);
        QueryBoxes<T> query(params, place.plane, place.own);
        if (!T::kByLength || balanced<T>(params)) {
            query.prefetch();
        }
        Loads<T> loads(params, shared, place, cursor, tails);
        if (loads.more && loads.keys.tile.begin < end_of_run(loads.producer, loads.stream, loads.keys.tile.begin)) {
            loads.producer.load_units(false, loads.keys.tile.begin, 0, T::kUnits);
            loads.ahead = true;
        }
        if (ptx::elect_one()) {
            hand_over(params, shared, walk, balance, parity);
            expect_query(params, shared);
        }
        __syncwarp();
        query.load(shared);
        producer_role<T>(params, loads);
        cursor = loads.producer.cursor;
        tails = loads.producer.tails;
    }
}

// K of the first tile and Q first, then the walk over all tiles is set up.
template <class T>
__device__ __forceinline__ void produce(const FmhaParams& params, SharedMap<T> shared, int width, int height,
                                        int ring) {
    const bool alone = width * height == 1;
    Walk<T> walk(params);
    BalancedWalk<T> balance;
    bool ahead = false;
    if (ring == 0) {
        ahead = begin<T>(params, shared, width, walk, balance).in(ring);
        ptx::named_barrier_arrive(kStartBarrier, T::kConsumerThreads + 64);
    } else {
        ptx::wait_for_primary();
        const int length = length_of<T>(params, entry_of(params, blockIdx.z), walk.row_tile);
        ahead = FirstTile<T>(params, walk, length).in(ring);
    }
    if (T::kByLength && walk.row_tile < 0) {
        if (ptx::elect_one()) {
            ptx::mbarrier_arrive(shared.query_full());
        }
        ptx::named_barrier_sync(kRingBarrier, 32 * (T::kRings + 1));
        end_tails(shared, 0);
        return;
    }
    if (!alone) {
        ptx::cluster_arrive();
    }
    const Place<T> place(params, walk, width, height);
    Loads<T> loads(params, shared, place, ring, ahead);
    stamp<kLoadsReady>(ring == 0 && threadIdx.x % 32 == 0);
    ptx::named_barrier_sync(kRingBarrier, 32 * (T::kRings + 1));
    if (!alone) {
        ptx::cluster_wait();
    }
    if constexpr (T::kRings == 1) {
        producer_role<T>(params, loads);
        if constexpr (T::kWalks) {
            produce_further<T>(params, shared, walk, balance, loads.producer);
        }
    } else {
        group_producer_role<T>(params, loads, ring);
    }
    __syncwarp();
}

// The other barriers, meanwhile.
template <class T>
__device__ __forceinline__ void prepare(const FmhaParams& params, SharedMap<T> shared, int width, bool alone) {
    if (ptx::elect_one()) {
        if (params.s_k > 0 && !(params.flags & kFmhaSharedKv)) {
            ptx::prefetch_tensor_map(params.v);
        }
        init_barriers<T, kFirstBarriers<T>, T::kNextFull>(shared, width);
    }
    __syncwarp();
    ptx::named_barrier_arrive(kRingBarrier, 32 * (T::kRings + 1));
    if constexpr (kKvHeads) {
        clear_idle_rows<T>(params, shared);
    }
    ptx::named_barrier_arrive(kStartBarrier, T::kConsumerThreads + 64);
    ptx::wait_for_primary();
    ptx::launch_dependents();
    if (!alone) {
        ptx::cluster_arrive();
        ptx::cluster_wait();
    }
}

// The result of the rows whose products are done, or their part of it.
template <class T>
__device__ __forceinline__ void finish_rows(Consumer<T>& consumer, const Place<T>& place, int slot = 0) {
    stamp<kLastProduct>(threadIdx.x == 0);
    float correction[2];
    finish_sums(consumer, correction);
    if (place.height > 1) {
        publish_part(consumer, correction);
        __syncwarp();
        ptx::cluster_sync();
        merge_parts<T>(consumer.params, consumer.shared, place);
    } else {
        store_rows(consumer, correction, slot);
        stamp<kStored>(threadIdx.x == 0);
    }
    stamp<kMerged>(threadIdx.x == 0);
    __syncwarp();
}

// What the producer has told.
template <class T>
__device__ __forceinline__ void next_of(const FmhaParams& params, const SharedMap<T>& shared, Walk<T>& walk) {
    if (balanced<T>(params)) {
        walk.go_to(shared, walk.turn % 2);
    } else {
        read_row_tile(shared.drawn(), walk);
    }
}

// Row tile after row tile. Where the next Q lands before the last product is done, the next scores are under way while
// rows are stored; the loop has one way out, and a wait on it, since ptxas adds waits wherever it cannot see one behind
// every product. A Q of 64 KiB takes longer, and rows are stored meanwhile.
template <class T>
__device__ __forceinline__ void consume_overlapped(Consumer<T>& consumer, Walk<T>& walk, Place<T>& place,
                                                   Cursor<T>& cursor) {
    Begun<T> begun(consumer, place, cursor);
#pragma unroll 1
    while (true) {
        run_overlapped(consumer, begun, cursor);
        const int slot = walk.turn % 2;
        if constexpr (!T::kBeginsAhead) {
            finish_rows<T>(consumer, place, slot);
        }
        Place<T> next = place;
        bool more = false;
        if constexpr (T::kWalks) {
            ++walk.turn;
            ptx::mbarrier_wait(consumer.shared.query_full(), walk.turn % 2);
            next_of(consumer.params, consumer.shared, walk);
            more = walk.row_tile >= 0;
            next = Place<T>(consumer.params, walk, 1, 1);
            begun = Begun<T>(consumer, next, cursor, more);
        }
        if constexpr (T::kBeginsAhead) {
            finish_rows<T>(consumer, place, slot);
        }
        if (!more) {
            if constexpr (T::kWalks) {
                ptx::wgmma_wait<0>();
                ptx::pin(consumer.s);
            }
            return;
        }
        place = next;
        consumer.begin(Rows<T>(consumer.params, place, consumer.row_group));
    }
}

template <class T>
__device__ __forceinline__ void consume(const FmhaParams& params, SharedMap<T> shared, int width, int height,
                                        int group) {
    const bool alone = width * height == 1;
    ptx::wait_for_primary();
    if (!alone) {
        ptx::cluster_arrive();
    }
    Walk<T> walk(params);
    const bool told = balanced<T>(params) || Walk<T>::draws_packed(params);
    if (told) {
        ptx::named_barrier_sync(kStartBarrier, T::kConsumerThreads + 64);
        ptx::mbarrier_wait(shared.query_full(), 0);
        next_of(params, shared, walk);
        if (walk.row_tile < 0) {
            return;
        }
    }
    if constexpr (T::kTurns) {
        if (group + 1 == T::kLaunch.row_groups) {
            ptx::named_barrier_arrive(kTurnBarrier, 256);  // the first group begins
        }
    }
    Cursor<T> cursor;
    Place<T> place(params, walk, width, height);
    Consumer<T> consumer(params, shared, place, group);
    if (!told) {
        ptx::named_barrier_sync(kStartBarrier, T::kConsumerThreads + 64);
    }
    if (!alone) {
        ptx::cluster_wait();
    }
    stamp<kConsumersMet>(threadIdx.x == 0);
    ptx::mbarrier_wait(shared.query_full(), 0);  // also without a tile: the copy must land first
    stamp<kQueryThere>(threadIdx.x == 0);
    if constexpr (T::kOverlap) {
        consume_overlapped<T>(consumer, walk, place, cursor);
    } else {
        if constexpr (T::kColumnGroups == 2) {
            run_alternating(consumer);
        } else {
            run_in_turn(consumer, cursor);
        }
        finish_rows<T>(consumer, place);
    }
    if constexpr (T::kTurns) {
        if (group == 0) {
            ptx::named_barrier_sync(kTurnBarrier, 256);
        }
    }
}

template <class T>
__device__ __forceinline__ void forward(const FmhaParams& params, uint32_t dynamic_shared) {
    const int width = !kFmhaSm90Clusters ? 1 : ptx::cluster_width(),
              height = !kFmhaSm90Clusters ? 1 : ptx::cluster_height();
    if (!T::kWalks && int(blockIdx.x) * tile_rows<T>(params) >= params.t * params.heads && width == 1) {
        return;  // fmha_query_blocks counts whole queries where there is a sparse branch; here rows are not cut there
    }
    const SharedMap<T> shared{(dynamic_shared + 1023) & ~1023u};
    const bool alone = width * height == 1;
    const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0);
    // Launched to overlap the grid before, this one comes so far while that one runs; each role waits for it before it
    // touches what that one may read or write.
    if (warp >= 4 * T::kConsumers) {
        stamp<kEntered>(threadIdx.x == 128 * T::kConsumers);
        ptx::keep_registers<T::kProducerRegisters>();
        const int role = warp - 4 * T::kConsumers;
        if (role < T::kRings) {
            produce<T>(params, shared, width, height, role);
        } else if (role == T::kRings) {
            prepare<T>(params, shared, width, alone);
            if constexpr (T::kTailWarp) {
                clear_tails(shared);
            }
        } else if (T::kByLength && role == T::kRings + 1) {
            order_role(params, shared);
        } else if (!alone) {
            ptx::cluster_arrive();
            ptx::cluster_wait();
        }
        if (height > 1) {
            ptx::cluster_sync();
        }
    } else {
        ptx::take_registers<T::kRegisters>();
        consume<T>(params, shared, width, height, warp / 4);
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
    fmha::sm90::combine<FMHA_HEAD_DIM, false>(params);
}

extern "C" __global__ void __launch_bounds__(kFmhaCombineThreads)
    fmha_combine_sm90_many(const __grid_constant__ FmhaParams params) {
    fmha::sm90::combine_many<FMHA_HEAD_DIM, false>(params);
}

// Behind balanced splits.
#if FMHA_BY_LENGTH && FMHA_ROWS == 0
extern "C" __global__ void __launch_bounds__(kFmhaCombineThreads)
    fmha_combine_sm90_balanced(const __grid_constant__ FmhaParams params) {
    fmha::sm90::combine<FMHA_HEAD_DIM, true>(params);
}

extern "C" __global__ void __launch_bounds__(kFmhaCombineThreads)
    fmha_combine_sm90_many_balanced(const __grid_constant__ FmhaParams params) {
    fmha::sm90::combine_many<FMHA_HEAD_DIM, true>(params);
}
#endif
