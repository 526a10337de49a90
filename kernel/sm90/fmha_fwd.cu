// Fused attention forward for sm_90a: a CTA computes `rows` query rows against its split's key tiles.
//
// Warpgroups, each with one role for the whole kernel: consumers, then one producer, a warp of it for each ring and one
// that initialises barriers and clears tails; another may look for row tiles. docs/understand/hopper.md has the shapes,
// the ring and the barriers; launch.h how to launch.
#include <stdint.h>

#include "common/ptx/cluster.cuh"
#include "common/ptx/shared.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/warp.cuh"
#include "fmha_params.h"
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

// The next row tile, the CTA's one of number `turn`, which is told the consumers; by one of `all`, where CTAs draw.
template <class T>
__device__ __forceinline__ Place<T> find_next(const FmhaParams& params, const SharedMap<T>& shared, Walk<T>& walk,
                                              BalancedWalk<T>& balance, int turn, int all) {
    if (balanced<T>(params)) {
        balance.advance(params);
        walk.go_to(balance);
    } else if (T::kByLength) {
        return take_next(params, shared, turn, Walk<T>::draws_packed(params) ? turn : turn + 1);
    } else {
        const int ctas = walk.ctas();
        walk.go_to(params, ctas < all ? draw(params, ctas, all) : all);
    }
    const Place<T> place(params, walk, 1, 1);
    if (ptx::elect_one()) {
        place.tell(shared, turn);
    }
    __syncwarp();
    return place;
}

// The row tiles behind the first. Each is drawn once the loads of the one before are under way, late enough for the
// CTAs that have most to do to draw least. K of the first tile comes before Q, which waits until the consumers are done
// with the Q before.
template <class T>
__device__ __forceinline__ void produce_further(const FmhaParams& params, SharedMap<T> shared, Walk<T>& walk,
                                                BalancedWalk<T>& balance, const Producer<T>& first) {
    Cursor<T> cursor = first.cursor;
    int tails = first.tails;
    const int all = T::kByLength ? 0 : walk.all(params);
#pragma unroll 1
    while (true) {
        const int before = kPaged ? tails : walk.turn;
        if constexpr (kPaged) {
            tails = (tails & -Producer<T>::kTailStep) + (tails + 1) % T::kPlaces;
        } else {
            ++walk.turn;
        }
        const uint32_t parity = before % 2;
        const Place<T> place = find_next(params, shared, walk, balance, before % T::kPlaces + 1, all);
        if (place.batch < 0) {
            if (ptx::elect_one()) {
                ptx::mbarrier_wait(shared.query_empty(), parity);
                ptx::mbarrier_arrive(shared.told());
            }
            __syncwarp();
            end_tails(shared, tails);
            return;
        }
        QueryBoxes<T> query(params, place.plane, place.own);  // order_role's are fetched
        if (!T::kByLength || balanced<T>(params)) {
            query.prefetch();
        }
        Loads<T> loads(params, shared, place, cursor, tails);
        if (loads.more && loads.keys.tile.begin < end_of_run(loads.producer, loads.stream, loads.keys.tile.begin)) {
            loads.producer.load_units(false, loads.keys.tile.begin, 0, T::kUnits);
            loads.ahead = true;
        }
        if (T::kAsksEarly && is_short(place)) {
            ask_for_next(params, shared);
            loads.producer.tails |= Producer<T>::kAsked;
        }
        if (ptx::elect_one()) {
            ptx::mbarrier_wait(shared.query_empty(), parity);
            expect_query(params, shared);
        }
        __syncwarp();
        query.load(shared);
        if (ptx::elect_one()) {
            ptx::mbarrier_arrive(shared.told());
        }
        __syncwarp();
        producer_role<T>(params, loads, [&] {
            if (!T::kAsksEarly || !(loads.producer.tails & Producer<T>::kAsked)) {
                ask_for_next(params, shared);
            }
        });
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
    bool ahead = false;
    if (ring == 0) {
        ahead = load_own(params, shared, walk, begin(params, shared, width, walk)).in(ring);
        ptx::named_barrier_arrive(kStartBarrier, T::kConsumerThreads + 64);
    } else {
        ptx::wait_for_primary();
        const int length = length_of<T>(params, entry_of(params, blockIdx.z), walk.row_tile);
        ahead = FirstTile<T>(params, walk, length).in(ring);
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
        producer_role<T>(params, loads, [] {});
    } else {
        group_producer_role<T>(params, loads, ring);
    }
    __syncwarp();
}

// The same where CTAs walk, for the first row tile and then all others.
template <class T>
__device__ __forceinline__ void produce_all(const FmhaParams& params, SharedMap<T> shared) {
    Walk<T> walk(params);
    BalancedWalk<T> balance;
    FirstTile<T> first = begin(params, shared, 1, walk);
    const bool looked_for = balanced<T>(params) || Walk<T>::draws_packed(params);
    if (!looked_for) {
        first = load_own(params, shared, walk, first);
    }
    const Place<T> place = looked_for ? find_first(params, shared, walk, balance) : Place<T>(params, walk, 1, 1);
    if (looked_for && place.batch >= 0) {
        first = FirstTile<T>(params, walk, place.length);
        load_first(params, shared, first, place.plane, place.own);
    }
    if (ptx::elect_one()) {
        if (!Walk<T>::draws_packed(params)) {
            place.tell(shared, 0);
        }
        ptx::mbarrier_arrive(shared.told());
    }
    __syncwarp();
    ptx::named_barrier_arrive(kStartBarrier, T::kConsumerThreads + 64);
    if (place.batch < 0) {
        ptx::named_barrier_sync(kRingBarrier, 32 * (T::kRings + 1));
        end_tails(shared, 0);
        return;
    }
    Loads<T> loads(params, shared, place, 0, first.in(0));
    stamp<kLoadsReady>(threadIdx.x % 32 == 0);
    ptx::named_barrier_sync(kRingBarrier, 32 * (T::kRings + 1));
    if (T::kByLength && !looked_for) {
        ptx::named_barrier_sync(kOrderBarrier, 64);
    }
    producer_role<T>(params, loads, [&] { ask_for_next(params, shared); });
    produce_further<T>(params, shared, walk, balance, loads.producer);
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
__device__ __forceinline__ void finish_rows(Consumer<T>& consumer, const Place<T>& place, const Target<T>& target) {
    stamp<kLastProduct>(threadIdx.x == 0);
    float correction[2];
    finish_sums(consumer, correction);
    if (place.height > 1) {
        publish_part(consumer, correction);
        __syncwarp();
        ptx::cluster_sync();
        merge_parts<T>(consumer.params, consumer.shared, place);
    } else {
        if (target.partial) {
            store_part(consumer, correction, target);
        } else {
            store_result(consumer, correction, target);
        }
        stamp<kStored>(threadIdx.x == 0);
    }
    stamp<kMerged>(threadIdx.x == 0);
    __syncwarp();
}

// Row tile after row tile. Where the next Q lands before the last product is done, the next scores are under way while
// rows are stored; the loop has one way out, and a wait on it, since ptxas adds waits wherever it cannot see one behind
// every product. A Q of 64 KiB takes longer, and rows are stored meanwhile. Where they go is found out while the last
// product is under way.
template <class T>
__device__ __forceinline__ void consume_overlapped(Consumer<T>& consumer, Place<T>& place, Cursor<T>& cursor) {
    const FmhaParams& params = consumer.params;
    Begun<T> begun(consumer, place, cursor);
    int turn = 0;
#pragma unroll 1
    while (true) {
        Target<T> target;
        Place<T> next = place;
        run_overlapped(consumer, begun, cursor, [&] {
            if constexpr (T::kWalks) {
                target = Target<T>(params, place);
            }
        });
        if constexpr (!T::kWalks) {
            target = Target<T>(params, place);
        }
        if constexpr (!T::kBeginsAhead) {
            finish_rows<T>(consumer, place, target);
        }
        bool more = false;
        if constexpr (T::kWalks) {
            ++turn;
            ptx::mbarrier_wait(consumer.shared.told(), turn % 2);
            next = Place<T>(params, consumer.shared, turn);
            more = next.batch >= 0;
            if (more) {
                ptx::mbarrier_wait(consumer.shared.query_full(), turn % 2);
            }
            begun = Begun<T>(consumer, next, cursor, more);
        }
        if constexpr (T::kBeginsAhead) {
            finish_rows<T>(consumer, place, target);
        }
        if (!more) {
            if constexpr (T::kWalks) {
                ptx::wgmma_wait<0>();
                ptx::pin(consumer.s);
            }
            return;
        }
        place = next;
        consumer.begin(Rows<T>(params, place, consumer.row_group));
    }
}

// Of the CTA or, where CTAs walk, its first row tile, as the producer tells.
template <class T>
__device__ __forceinline__ Place<T> first_place(const FmhaParams& params, const SharedMap<T>& shared, int width,
                                                int height) {
    if constexpr (T::kWalks) {
        ptx::named_barrier_sync(kStartBarrier, T::kConsumerThreads + 64);
        ptx::mbarrier_wait(shared.told(), 0);
        return {params, shared, 0};
    } else {
        return {params, Walk<T>(params), width, height};
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
    Place<T> place = first_place(params, shared, width, height);
    if (T::kWalks && place.batch < 0) {
        return;
    }
    if constexpr (T::kTurns) {
        if (group + 1 == T::kLaunch.row_groups) {
            ptx::named_barrier_arrive(kTurnBarrier, 256);  // the first group begins
        }
    }
    Cursor<T> cursor;
    Consumer<T> consumer(params, shared, place, group);
    if constexpr (!T::kWalks) {
        ptx::named_barrier_sync(kStartBarrier, T::kConsumerThreads + 64);
    }
    if (!alone) {
        ptx::cluster_wait();
    }
    stamp<kConsumersMet>(threadIdx.x == 0);
    ptx::mbarrier_wait(shared.query_full(), 0);  // also without a tile: the copy must land first
    stamp<kQueryThere>(threadIdx.x == 0);
    if constexpr (T::kOverlap) {
        consume_overlapped<T>(consumer, place, cursor);
    } else {
        if constexpr (T::kColumnGroups == 2) {
            run_alternating(consumer);
        } else {
            run_in_turn(consumer, cursor);
        }
        finish_rows<T>(consumer, place, Target<T>(params, place));
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
            if constexpr (T::kWalks) {
                produce_all(params, shared);
            } else {
                produce<T>(params, shared, width, height, role);
            }
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
