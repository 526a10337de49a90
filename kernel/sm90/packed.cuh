// The order of row tiles where queries are packed and CTAs draw: of those that there are. An entry of few queries has
// fewer than the longest one, and a row tile behind its last query would cost a CTA a whole turn.
//
// Which row tile a number means follows from the lengths. A warp looks for it, each lane at a batch entry, over one
// group of consecutive planes after the other. The numbers that a CTA asks for grow, so it never goes back.
// order_role of order.cuh is that warp.
#pragma once

#include <limits.h>
#include <stdint.h>

#include "common/lanes.cuh"
#include "common/ptx/warp.cuh"
#include "common/work.cuh"
#include "tiles.cuh"

namespace fmha::sm90 {

constexpr int kPasses = 3;  // over all entries without a mask, each of those with fewer keys than the ones before

// How far a CTA has come. All of it by the whole warp. Of a group of more batch entries than a warp has lanes as many
// are looked through at a time, and what is left of it is the next group.
struct PackedOrder {
    int each;             // planes of a group
    int before_last;      // planes of all groups but the last one
    int first = 0;        // plane of the group that the CTA is at
    int passed = 0;       // row tiles before it and, of it, those at height `level` and above
    int level = INT_MAX;  // a plane's row tile 0 has height 1
    int pass = 0;         // without a mask
    int all = INT_MAX;    // row tiles, if they were counted

    // Row tiles of `rows` rows that each plane of a batch entry has.
    static __device__ int tiles_of(const FmhaParams& params, int entry, int rows) {
        return ceil_div(queries_of(params, entry) * params.heads, rows);
    }

    __device__ void count(const FmhaParams& params, int rows) {
        const int entries = by_kv_heads(params, params.batch);
        int tiles = 0;
#pragma unroll 1
        for (int entry = threadIdx.x % 32; entry < entries; entry += 32) {
            tiles += tiles_of(params, entry, rows);
        }
        all = __reduce_add_sync(0xffffffffu, tiles) * params.kv_heads;
    }

    // The pass in which an entry without a mask comes: the first if it has more than half of the keys that any may
    // have, the second with more than a quarter.
    static __device__ int pass_of(const FmhaParams& params, int entry) {
        const unsigned keys = keys_of(params, entry), most = params.s_k;
        return keys > most / 2 ? 0 : keys > most / 4 ? 1 : kPasses - 1;
    }

    // Row tile `index` of `rows` rows, if there are so many. Under a mask those of a group come by their height, the
    // highest first; else one plane after the other, and long ones first: a row tile that is drawn late is to be short.
    __device__ bool find(const FmhaParams& params, int rows, int index, int& plane, int& row_tile) {
        const int heads = params.kv_heads;
#pragma unroll 1
        while (index < all) {
            if (first >= params.batch) {
                if (windowed(params) || pass + 1 == kPasses) {
                    return false;
                }
                first = 0;
                ++pass;
            }
            const int first_entry = by_kv_heads(params, first), entry = first_entry + threadIdx.x % 32;
            const int group = first < before_last ? min(first + each, before_last) : params.batch;
            const int end = min(group, (first_entry + 32) * heads);
            const int begin = max(entry * heads, first);  // of the lane's planes
            int planes = max(min((entry + 1) * heads, end) - begin, 0);
            if (planes > 0 && !windowed(params) && pass_of(params, entry) != pass) {
                planes = 0;
            }
            const int tiles = planes > 0 ? tiles_of(params, entry, rows) : 0;
            const int left = __reduce_add_sync(0xffffffffu, min(tiles, level) * planes);
            int place = index - passed;
            if (place >= left) {
                passed += left;
                first = end;
                level = INT_MAX;
                continue;
            }
            if (!windowed(params)) {
                const LanePlace found(tiles * planes, place);
                const unsigned of_plane = __shfl_sync(0xffffffffu, tiles, found.lane);
                const unsigned before = unsigned(found.within) / of_plane;
                plane = __shfl_sync(0xffffffffu, begin, found.lane) + before;
                row_tile = of_plane - 1 - (found.within - before * of_plane);
                return true;
            }
            unsigned width;  // planes that reach up to `level`: as many at each height above the next lower plane's
#pragma unroll 1
            while (true) {
                width = __reduce_add_sync(0xffffffffu, tiles >= level ? planes : 0);
                const int next = __reduce_max_sync(0xffffffffu, tiles < level ? tiles : 0);
                const int band = width * (level - next);
                if (place < band) {
                    break;
                }
                place -= band;
                passed += band;
                level = next;
            }
            const unsigned down = unsigned(place) / width;
            row_tile = level - 1 - down;
            const LanePlace found(tiles >= level ? planes : 0, place - down * width);
            plane = __shfl_sync(0xffffffffu, begin, found.lane) + found.within;
            return true;
        }
        return false;
    }
};

}  // namespace fmha::sm90
