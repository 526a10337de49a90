// Where the boxes lie that a plane's Q, K and V are loaded by.
#pragma once

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

// Calls load(row, x, y, z, w, u) for each of the boxes, at (x, y, z, w, u), into which queries and heads divide 64
// columns of Q, from `column` on; `row` is the row tile's. Each lane for its own: one thread takes some 0.1 us for
// each. For kernels that know K/V heads.
template <class T, class Load>
__device__ __forceinline__ void for_each_query_box(const FmhaParams& params, const Walk<T>& walk, int column,
                                                   Load load) {
    const Plane plane = plane_of(params, walk.batch);
#pragma unroll 1
    for (int row = threadIdx.x % 32 * params.query_box; row < tile_rows<T>(params); row += 32 * params.query_box) {
        const int own = walk.row_tile * tile_rows<T>(params) + row;
        load(row, column, own % params.heads, own / params.heads, plane.kv_head, plane.entry);
    }
}

}  // namespace fmha::sm90
