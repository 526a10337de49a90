// The producer warp: fills Q and the ring of K and V by TMA.
//
// The ring's order: K and V of each tile, or with kKeysAhead K of each tile before V of the tile before it. With K = V
// only the K's, and the consumers read each twice.
#pragma once

#include <type_traits>

#include "boxes.cuh"
#include "clocks.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/shared.cuh"
#include "place.cuh"
#include "ptx/tma.cuh"
#include "tails.cuh"

namespace fmha::sm90 {

// What kernels have for a BoxLoader that know no pages.
struct NoBoxes {
    __device__ NoBoxes(const FmhaParams&, Plane, KeyRange) {}
};

template <class T>
struct Producer {
    using Boxes = std::conditional_t<kPaged, BoxLoader<T>, NoBoxes>;
    static constexpr int kLaneRows = (T::kKeys + 31) / 32;
    // Of pages and packed keys, whether tiles of one box have a loop of their own: where a tile of K or V has several
    // units for one ring, the loop for several boxes takes longer than their products.
    static constexpr bool kBoxPerTile = T::kUnits > 1 && T::kRings == 1;
    // What a tail that was cleared adds to `tails`. With 192 rows a producer of pages has no register to spare, and
    // what is below is produce_further's: the number of the row tile, modulo kPlaces, and whether the next one is asked
    // for.
    static constexpr int kAsked = T::kPlaces;
    static constexpr int kTailStep = kPaged ? 2 * T::kPlaces : 1;
    static __device__ int set_of(int tails) { return tails / kTailStep % 2; }

    const FmhaParams& params;
    SharedMap<T> shared;
    const Place<T>& place;
    int lane;
    Cursor<T> cursor;
    int tails = 0;  // that were cleared
    Boxes boxes{params, place.plane, in_pages(params) ? place.seen(params) : KeyRange{}};

    // A tile and, of a sparse one, the rows that this lane copies.
    struct Load {
        Tile tile;
        int rows[kLaneRows];
    };

    __device__ bool next(TileStream<T>& stream, Load& load) {
        if (!stream.next(load.tile)) {
            return false;
        }
#pragma unroll
        for (int i = 0; i < kLaneRows; ++i) {
            const int row = load.tile.sparse() ? stream.row_of(load.tile, lane + 32 * i) : -1;
            load.rows[i] = row < 0 ? -1 : place.batch * params.s_sparse + row;
        }
        return true;
    }

    // Keys past kv_len may hold NaN, and 0 * NaN is NaN: what V multiplies is cleared. Past s_k TMA does it. The copy
    // completes on a barrier of its own, one a unit: a CTA meets at most one such tile for each of its row tiles.
    __device__ bool has_tail(const Tile& tile, bool value) const {
        return !tile.sparse() && tile.begin + T::kKeys > place.length && (kPaged || place.length < params.s_k) &&
               (value || (params.flags & kFmhaSharedKv));
    }

    __device__ void load_tile(const Load& load, bool value, int first = 0, int end = T::kUnits) {
        const bool tail = has_tail(load.tile, value);
        BoxPlace box;
        if constexpr (kPaged) {
            box = boxes.place_of(load.tile.begin);
        }
        if (T::kPolicy.tail_warp && tail) {
            tell_tail(place.length - load.tile.begin);
        }
        Cursor<T> cleared = cursor;
#pragma unroll 1
        for (int unit = first; unit < end; ++unit) {
            ptx::mbarrier_wait(shared.empty(cursor.slot), cursor.parity ^ 1);
            const uint32_t barrier = tail ? shared.tail(unit, tail_set()) : shared.full(cursor.slot);
            if (load.tile.sparse()) {
                gather_unit(load, value, unit);
            } else {
                if constexpr (kPaged) {
                    load_boxes(value, box, unit, barrier);
                } else if (lane == 0) {
                    load_unit(value ? params.v : params.k, shared.slot(cursor.slot), barrier, unit, load.tile.begin,
                              place.plane);
                }
            }
            __syncwarp();
            cursor.advance();
        }
        // Once all units are on their way: each would wait for memory anew.
        if (!T::kPolicy.tail_warp && tail) {
#pragma unroll 1
            for (int unit = first; unit < end; ++unit) {
                ptx::mbarrier_wait(shared.tail(unit), tails / kTailStep % 2);
                clear_rows(shared, cleared.slot, place.length - load.tile.begin);
                cleared.advance();
            }
        }
        tails += tail ? kTailStep : 0;
    }

    // Units [first, end) of the dense tile at `key`, without a tail to clear.
    __device__ __forceinline__ void load_units(bool value, int key, int first, int end) {
        Plane plane = place.plane;
        if constexpr (kPaged) {
            const BoxPlace box = boxes.place_of(key);
            if (!kBoxPerTile || params.key_box < T::kKeys) {
#pragma unroll 1
                for (int unit = first; unit < end; ++unit) {
                    ptx::mbarrier_wait(shared.empty(cursor.slot), cursor.parity ^ 1);
                    load_boxes(value, box, unit, shared.full(cursor.slot));
                    cursor.advance();
                }
                return;
            }
            key = box.row;  // a box a tile, as without pages
            plane.entry = box.page;
        }
        if (ptx::elect_one()) {
            const FmhaTensorMap& map = value ? params.v : params.k;
            Cursor<T> at = cursor;
#pragma unroll 1
            for (int unit = first; unit < end; ++unit) {
                const uint32_t barrier = shared.full(at.slot), destination = shared.slot(at.slot);
                ptx::mbarrier_wait(shared.empty(at.slot), at.parity ^ 1);
                load_unit(map, destination, barrier, unit, key, plane);
                at.advance();
            }
        }
        __syncwarp();
        cursor.advance(end - first);
    }

private:
    __device__ int tail_set() const { return T::kPolicy.tail_warp ? set_of(tails) : 0; }

    // What clear_tails reads once the first unit is there.
    __device__ __forceinline__ void tell_tail(int first) {
        if (ptx::elect_one()) {
            ptx::store_shared(shared.tail_word(tail_set()), uint32_t(cursor.slot << kSlotShift | first));
        }
        __syncwarp();
    }

    // A unit into the ring's next slot, which is free, by the whole warp; `box` is the lane's.
    __device__ __forceinline__ void load_boxes(bool value, BoxPlace box, int unit, uint32_t barrier) {
        if (ptx::elect_one()) {
            ptx::mbarrier_arrive_expect_tx(barrier, T::kUnitBytes);
        }
        __syncwarp();
        boxes.load(value ? params.v : params.k, shared.slot(cursor.slot), barrier, unit, box);
    }

    // A unit of the dense tile at `key` to a slot that is free, by one thread.
    __device__ __forceinline__ void load_unit(const FmhaTensorMap& map, uint32_t destination, uint32_t barrier,
                                              int unit, int key, Plane plane) {
        ptx::mbarrier_arrive_expect_tx(barrier, T::kUnitBytes);
#pragma unroll
        for (int position = 0; position < T::kBoxes; ++position) {
            const int column = (unit * T::kBoxes + position) * 64;
            load_box(params, map, destination + position * T::kBoxBytes, barrier, column, key, plane);
        }
    }

    // Row by row, each 128 bytes of it a copy of its own: Hopper has no gather. The swizzle follows the address in
    // shared memory, so rows land as a box would put them; row -1 is out of bounds and arrives as zeros.
    __device__ void gather_unit(const Load& load, bool value, int unit) {
        const FmhaTensorMap& map = value ? params.sparse_v : params.sparse_k;
        const uint32_t barrier = shared.full(cursor.slot);
        if (lane == 0) {
            ptx::mbarrier_arrive_expect_tx(barrier, T::kUnitBytes);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kLaneRows; ++i) {
            const int row = lane + 32 * i;
            if (T::kKeys % 32 == 0 || row < T::kKeys) {
#pragma unroll
                for (int position = 0; position < T::kBoxes; ++position) {
                    ptx::tma_load_2d(shared.slot(cursor.slot) + position * T::kBoxBytes + row * 128, map, barrier,
                                     (unit * T::kBoxes + position) * 64, load.rows[i]);
                }
            }
        }
    }
};

// The warp for tails is to leave. Not before the consumers are done with the last Q: its tail may be under way then,
// but none before it. By the whole warp.
template <class T>
__device__ __forceinline__ void end_tails(const SharedMap<T>& shared, int tails) {
    if constexpr (T::kPolicy.tail_warp) {
        if (ptx::elect_one()) {
            const int set = Producer<T>::set_of(tails);
            ptx::store_shared(shared.tail_word(set), kNoTail);
            ptx::mbarrier_arrive(shared.tail(0, set));
        }
        __syncwarp();
    }
}

// What the producer warp loads: all of it but Q.
template <class T>
struct Loads {
    Producer<T> producer;
    TileStream<T> stream;
    typename Producer<T>::Load keys{};
    bool more;
    bool ahead;  // K of the first tile, which begins a run, is on its way

    __device__ Loads(const FmhaParams& params, SharedMap<T> shared, const Place<T>& place, int ring, bool ahead)
        : producer{params, shared, place, int(threadIdx.x % 32), {ring}}, stream(place.tiles(params)), ahead(ahead) {
        if (ahead) {
            producer.cursor.advance(T::kRings == 2 && params.flags & kFmhaSharedKv ? T::kGroupUnits : T::kUnits);
        }
        more = producer.next(stream, keys);
    }

    // Of a further row tile, behind those of the one before.
    __device__ Loads(const FmhaParams& params, SharedMap<T> shared, const Place<T>& place, const Cursor<T>& cursor,
                     int tails)
        : producer{params, shared, place, int(threadIdx.x % 32), cursor, tails},
          stream(place.tiles(params)),
          ahead(false) {
        more = producer.next(stream, keys);
    }
};

}  // namespace fmha::sm90
