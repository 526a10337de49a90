// Where the boxes lie that a plane's Q, K and V are loaded by.
#pragma once

#include "common/pages.cuh"
#include "ptx/tma.cuh"
#include "traits.cuh"

namespace fmha::sm90 {

// The box of K or V of a plane at (column, key). Which plane a number means takes a division, which is for once a row
// tile: the producer has no time for one a box.
__device__ __forceinline__ void load_box(const FmhaParams& params, const FmhaTensorMap& map, uint32_t destination,
                                         uint32_t barrier, int column, int key, Plane plane) {
    if constexpr (kKvHeads) {
        ptx::tma_tile_4d(destination, map, barrier, column, key, plane.kv_head, plane.entry);
    } else {
        ptx::tma_tile_3d(destination, map, barrier, column, key, plane.entry);
    }
}

// What loads units of K and V in kernels that know pages and packed keys, by the whole warp: a lane has one box of
// keys, of 64 columns or of several.
template <class T>
struct BoxLoader {
    KeyBoxes boxes;
    int kv_head;
    int count;  // of boxes of keys, a tile
    int key;    // of the tile, from its first one on, at which the lane's box is
    BoxPlace held{};
    int held_key = -1;  // of the box whose place is known before it is due

    // Of rows that see the keys `seen`.
    __device__ BoxLoader(const FmhaParams& params, int plane, KeyRange seen)
        : boxes{params, plane_of(params, plane).entry, seen},
          kv_head(plane_of(params, plane).kv_head),
          count(T::kKeys / params.key_box),
          key(int(threadIdx.x % 32) % count * params.key_box) {}

    // Where the lane's box of the tile at `begin` lies. Of K, `ahead`, the next tile's page is looked up as well, whose
    // latency the tiles between hide.
    __device__ BoxPlace place_of(int begin, bool ahead) {
        const int own = begin + key;
        const BoxPlace place = own == held_key ? held : boxes.place_of(own);
        if (ahead) {
            held_key = own + T::kKeys;
            held = boxes.place_of(held_key);
        }
        return place;
    }

    // A unit of that tile, whose bytes the barrier expects already.
    __device__ void load(const FmhaTensorMap& map, uint32_t destination, uint32_t barrier, int unit, BoxPlace place) {
        const int lane = threadIdx.x % 32, stride = 32 / count;  // from one of a lane's 64 columns to the next
        if (lane < stride * count) {
            for (int position = lane / count; position < T::kBoxes; position += stride) {
                ptx::tma_tile_4d(destination + position * T::kBoxBytes + key * 128, map, barrier,
                                 (unit * T::kBoxes + position) * 64, place.row, kv_head, place.page);
            }
        }
        __syncwarp();
    }
};

// Calls load(row, x, y, z, w, u) for each of the boxes, at (x, y, z, w, u), into which queries and heads divide 64
// columns of Q, from `column` on; `row` is the row tile's. Each lane for its own: one thread takes some 0.1 us for
// each. For kernels that know K/V heads.
template <class T, class Load>
__device__ __forceinline__ void for_each_query_box(const FmhaParams& params, const Walk<T>& walk, int column,
                                                   Load load) {
    const Plane plane = plane_of(params, walk.batch);
    const bool packed = packed_queries(params);
    const int before = packed ? params.cu_seqlens_q[plane.entry] : 0, entry = packed ? 0 : plane.entry;
#pragma unroll 1
    for (int row = threadIdx.x % 32 * params.query_box; row < tile_rows<T>(params); row += 32 * params.query_box) {
        const int own = walk.row_tile * tile_rows<T>(params) + row;
        load(row, column, own % params.heads, before + own / params.heads, plane.kv_head, entry);
    }
}

}  // namespace fmha::sm90
