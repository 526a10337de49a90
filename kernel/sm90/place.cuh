// Where a CTA stands, and what its row tile is: found by one role, and told the others through shared memory.
#pragma once

#include <stdint.h>

#include "common/ptx/shared.cuh"
#include "ptx/control.cuh"
#include "shared_map.cuh"
#include "tiles.cuh"
#include "walk.cuh"

namespace fmha::sm90 {

// Where a CTA stands in the grid; where CTAs walk, a row tile, which one warp finds for all.
template <class T>
struct Place {
    int batch;    // negative: there is no row tile
    Plane plane;  // which that is
    OwnTiles<T::kPolicy.balances> own_tiles;
    int part = -1;  // with balanced splits as Span has it
    int length;     // of the dense branch
    int offset;     // query 0's position
    int own;        // rows [own, own_end), none if it ends before it begins; those before row 0 are not stored
    int own_end;
    int dense = 0;  // where CTAs walk, the dense keys [dense, dense_end) of its tiles
    int dense_end = 0;

    // own_end, computed again where it is needed, which is at the end: no register holds it over the loop.
    __device__ int end(const FmhaParams& params) const {
        return min(own + tile_rows<T>(params), queries_of(params, plane.entry) * params.heads);
    }

    __device__ Place(const FmhaParams& params, const Walk<T>& walk) : own_tiles(walk.tiles) {
        const int row_tile = walk.row_tile, each = tile_rows<T>(params);
        batch = walk.batch;
        plane = plane_of(params, batch);
        const int entry = plane.entry, rows = queries_of(params, entry) * params.heads;
        length = length_of<T>(params, entry, row_tile);
        offset = params.query_offsets ? params.query_offsets[entry] : length - queries_of(params, entry);
        own = walk.first_row(params, rows);
        own_end = min(own + each, rows);
        if constexpr (T::kWalks) {
            batch = walk.row_tile < 0 ? -1 : batch;
            const TileStream<T> stream(params, batch, own_tiles, length, offset, own, own_end);
            dense = stream.dense;
            dense_end = stream.dense_end;
            if constexpr (T::kPolicy.balances) {
                part = own_tiles.part;
            }
        }
    }

    // What `tell` has left. By the whole warp, of which one lane reads: the words are written anew once that lane has
    // said by an arrival that they are read, and racecheck knows no order from another lane's read over __syncwarp to
    // it.
    __device__ Place(const FmhaParams& params, const SharedMap<T>& map, int turn) {
        uint32_t words[8] = {};
        if (threadIdx.x % 32 == 0) {
            ptx::load_shared(map.place(turn), *reinterpret_cast<uint32_t (*)[4]>(words));
            ptx::load_shared(map.place(turn) + 16, *reinterpret_cast<uint32_t (*)[4]>(words + 4));
        }
        int* const fields[] = {&batch, &part, &length, &offset, &own, &own_end, &dense, &dense_end};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            *fields[i] = int(__shfl_sync(0xffffffffu, words[i], 0));
        }
        plane = plane_of(params, max(batch, 0));
    }

    // For the CTA's other warps, by one thread. Slots take turns: the next place is found before the consumers have
    // read the one before.
    __device__ void tell(const SharedMap<T>& map, int turn) const {
        ptx::store_shared_v4(map.place(turn), uint32_t(batch), uint32_t(part), uint32_t(length), uint32_t(offset));
        ptx::store_shared_v4(map.place(turn) + 16, uint32_t(own), uint32_t(own_end), uint32_t(dense),
                             uint32_t(dense_end));
    }

    // The keys that some row of the CTA sees that there is: pages of others may hold anything.
    __device__ KeyRange seen(const FmhaParams& params) const {
        if (!windowed(params)) {
            return {0, length};
        }
        return {visible_keys(params, length, offset, query_of(params, own)).first,
                visible_keys(params, length, offset, query_of(params, own_end - 1)).end};
    }

    // Behind the last key that some row of a row group sees.
    __device__ int end_seen(const FmhaParams& params, int row_group) const {
        const int first = own + 64 * row_group, last = min(first + 64, own_end) - 1;
        if (last < max(first, 0)) {
            return 0;
        }
        if (!windowed(params)) {
            return length;
        }
        return visible_keys(params, length, offset, query_of(params, last)).end;
    }

    __device__ TileStream<T> tiles(const FmhaParams& params) const {
        if constexpr (T::kWalks) {
            return {params, batch, dense, dense_end};
        } else {
            return {params, batch, own_tiles, length, offset, own, own_end};
        }
    }
};

}  // namespace fmha::sm90
