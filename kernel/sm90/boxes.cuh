// Where the boxes lie that a plane's Q, K and V are loaded by.
#pragma once

#include "common/pages.cuh"
#include "common/ptx/tma.cuh"
#include "ptx/tma.cuh"
#include "shared_map.cuh"

namespace fmha::sm90 {

// Where CTAs walk, other row tiles read K and V again, and Q is read once: the L2 is told so. Without it a call takes
// up to 14 us longer behind a kernel of FlashAttention-3, which tells it the same, with it half of that. At head_dim 64
// it gains nothing, and producers of narrow row tiles at 256 have no register for it.
constexpr bool kSaysWhatLasts =
    kFmhaSm90Walks && (FMHA_HEAD_DIM == 128 || (FMHA_HEAD_DIM == 256 && fmha_sm90_launch(256).rows > 64));

// The box of K or V at (column, row) of a head, in a batch entry or a page.
__device__ __forceinline__ void load_box(const FmhaTensorMap& map, uint32_t destination, uint32_t barrier, int column,
                                         int row, int kv_head, int entry) {
    if constexpr (kSaysWhatLasts) {
        ptx::tma_load_4d(destination, map, barrier, column, row, kv_head, entry, ptx::policy_evict_last());
    } else {
        ptx::tma_tile_4d(destination, map, barrier, column, row, kv_head, entry);
    }
}

// The box of K or V of a plane at (column, key). Which plane a number means takes a division, which is for once a row
// tile: the producer has no time for one a box.
__device__ __forceinline__ void load_box(const FmhaParams& params, const FmhaTensorMap& map, uint32_t destination,
                                         uint32_t barrier, int column, int key, Plane plane) {
    if constexpr (kKvHeads) {
        load_box(map, destination, barrier, column, key, plane.kv_head, plane.entry);
    } else if constexpr (kSaysWhatLasts) {
        ptx::tma_load_3d(destination, map, barrier, column, key, plane.entry, ptx::policy_evict_last());
    } else {
        ptx::tma_tile_3d(destination, map, barrier, column, key, plane.entry);
    }
}

// Divides as a power of two does, by a shift: a division takes the producer longer than the copy that it is for.
struct ByShift {
    int bits;

    __device__ explicit ByShift(int32_t power) : bits(__ffs(power) - 1) {}

    template <class Number>
    friend __device__ Number operator/(Number number, ByShift by) {
        return number >> by.bits;
    }
};

// What loads units of K and V in kernels that know pages and packed keys, by the whole warp: a lane looks up where a
// box of keys lies. The table is read where a tile is loaded, and a line of it serves many tiles from L1.
template <class T>
struct BoxLoader {
    static_assert(32 * 16 >= T::kKeys, "a lane for each box, with the smallest pages as well");
    KeyBoxes boxes;
    int kv_head;

    // Of rows that see the keys `seen`.
    __device__ BoxLoader(const FmhaParams& params, Plane plane, KeyRange seen)
        : boxes{params, plane.entry, seen}, kv_head(plane.kv_head) {}

    // The first key of the lane's box, from the tile's first one on; lanes that a tile has no box for count on.
    __device__ int first() const { return int(threadIdx.x % 32) * boxes.params.key_box; }

    // Where the lane's box of the tile at `begin` lies.
    __device__ BoxPlace place_of(int begin) const {
        return boxes.place_of(begin + first() % T::kKeys, ByShift(boxes.params.page_size));
    }

    // A unit of that tile, whose bytes the barrier expects already. Lanes take turns at a copy, so that of several
    // boxes of the same keys one lane issues all.
    __device__ void load(const FmhaTensorMap& map, uint32_t destination, uint32_t barrier, int unit, BoxPlace place) {
        if constexpr (T::kBoxes == 1) {
            if (first() < T::kKeys) {
                load_box(map, destination + first() * 128, barrier, unit * 64, place.row, kv_head, place.page);
            }
        } else {
            int lane = 0;
#pragma unroll 1
            for (int key = 0; key < T::kKeys; key += boxes.params.key_box, ++lane) {
                const int row = __shfl_sync(0xffffffffu, place.row, lane);
                const int page = __shfl_sync(0xffffffffu, place.page, lane);
                if (ptx::elect_one()) {
#pragma unroll
                    for (int position = 0; position < T::kBoxes; ++position) {
                        load_box(map, destination + position * T::kBoxBytes + key * 128, barrier,
                                 (unit * T::kBoxes + position) * 64, row, kv_head, page);
                    }
                }
            }
        }
        __syncwarp();
    }
};

// The boxes of Q of the row tile that begins with row `first` of a plane. In kernels that know K/V heads queries and
// heads divide it into several, of which each lane has its own, since one thread takes some 0.1 us for each; where a
// lane's first one lies is found at once, so that nothing is left to find when there is room for Q. All by the whole
// warp.
template <class T>
struct QueryBoxes {
    const FmhaParams& params;
    int first;
    int entry;
    int kv_head;
    int before = 0;  // the plane's first query among those of the map
    int head = 0;
    int query = 0;

    __device__ QueryBoxes(const FmhaParams& params, Plane plane, int first)
        : params(params), first(first), entry(plane.entry), kv_head(plane.kv_head) {
        if constexpr (kKvHeads) {
            if (packed_queries(params)) {
                before = params.cu_seqlens_q[entry];
                entry = 0;
            }
            find(row_of_lane());
        }
    }

    // Once a thread has told query_full of its bytes.
    __device__ __forceinline__ void load(const SharedMap<T>& shared) {
        const uint32_t barrier = shared.query_full();
        if constexpr (kKvHeads) {
            for_each([&](int box, int row, int x, int y, int z, int w, int u) {
                if constexpr (kSaysWhatLasts) {
                    ptx::tma_load_5d(shared.query(box) + row * 128, params.q, barrier, x, y, z, w, u,
                                     ptx::policy_evict_first());
                } else {
                    ptx::tma_tile_5d(shared.query(box) + row * 128, params.q, barrier, x, y, z, w, u);
                }
            });
        } else if (ptx::elect_one()) {
#pragma unroll
            for (int box = 0; box < T::kHeadDim / 64; ++box) {
                ptx::tma_tile_3d(shared.query(box), params.q, barrier, box * 64, first, entry);
            }
        }
        __syncwarp();
    }

    // Into the L2, where `load` finds it.
    __device__ __forceinline__ void prefetch() {
        if constexpr (kKvHeads) {
            for_each(
                [&](int, int, int x, int y, int z, int w, int u) { ptx::prefetch_tile_5d(params.q, x, y, z, w, u); });
        } else if (ptx::elect_one()) {
#pragma unroll
            for (int box = 0; box < T::kHeadDim / 64; ++box) {
                ptx::prefetch_tile_3d(params.q, box * 64, first, entry);
            }
        }
        __syncwarp();
    }

private:
    __device__ int row_of_lane() const { return threadIdx.x % 32 * params.query_box; }

    // Rows before the plane's first belong to queries of negative numbers: those of another entry, or zeros.
    __device__ void find(int row) {
        const int above = first + row + T::kRows * params.heads, number = by_heads(params, above);
        head = above - number * params.heads;
        query = before + number - T::kRows;
    }

    // Calls load(box, row, x, y, z, w, u) for each box of 64 columns; `row` is the row tile's.
    template <class Load>
    __device__ __forceinline__ void for_each(Load load) {
#pragma unroll 1
        for (int row = row_of_lane(); row + params.query_box <= T::kRows; row += 32 * params.query_box) {
            if (row >= 32 * params.query_box) {
                find(row);
            }
#pragma unroll
            for (int box = 0; box < T::kHeadDim / 64; ++box) {
                load(box, row, box * 64, head, query, kv_head, entry);
            }
        }
    }
};

}  // namespace fmha::sm90
