// Balanced splits (FmhaParams::parts): where lengths differ, the tiles of all planes are divided evenly among the CTAs
// of the grid. A CTA walks over what it has of each plane.
//
// Who has what follows from the lengths alone, which each CTA reads for itself. Planes have one row tile each.
#pragma once

#include "common/lanes.cuh"
#include "tiles.cuh"

namespace fmha::sm90 {

template <class T>
__device__ __forceinline__ bool balanced(const FmhaParams& params) {
    return T::kPolicy.balances && params.parts > 0;
}

// Tiles [begin, end) of a plane.
struct Span {
    int begin;
    int end;
    int part;  // the number of its partial result; negative for all tiles of a plane, whose rows have their result here
};

// Tiles of a plane of `entry`. One without keys has one, since somebody must store its rows.
template <class T>
__device__ __forceinline__ int tiles_of(const FmhaParams& params, int entry) {
    return max(ceil_div(keys_of(params, entry), T::kKeys), 1);
}

// Which of a plane's tiles a CTA has: by splits, or where they are balanced a span. Kernels that never balance keep
// nothing of it.
template <bool Balances>
struct OwnTiles {
    __device__ void take(const Span&) {}

    // Of the tiles [first, first + count) that rows see.
    __device__ Share share(const FmhaParams& params, int, int count) const {
        return Share(count, blockIdx.y, params.splits);
    }
};

template <>
struct OwnTiles<true> {
    int begin = 0;
    int end = 0;
    int part = -1;

    __device__ void take(const Span& span) {
        begin = span.begin;
        end = span.end;
        part = span.part;
    }

    __device__ Share share(const FmhaParams& params, int first, int count) const {
        Share own(count, blockIdx.y, params.splits);
        if (params.parts > 0) {
            own.begin = min(max(begin - first, 0), count);
            own.end = min(max(end - first, 0), count);
        }
        return own;
    }
};

// The walk of a CTA over its tiles, by the whole producer warp. CTAs are in groups of one for each K/V head, which go
// side by side: the heads' rows lie beside each other in memory. The tiles of one head of all entries, an entry after
// another, are divided among the groups.
template <class T>
struct BalancedWalk {
    int plane = -1;  // negative: none is left
    Span span{0, 0, 0};
    int heads = 1;        // K/V heads of an entry
    unsigned at = 0;      // the next tile among those of all entries,
    unsigned end = 0;     // and behind the group's last one
    unsigned each = 1;    // tiles of a group,
    unsigned larger = 0;  // but for so many, the first ones, which have one more

    // Once lengths may be read.
    __device__ void start(const FmhaParams& params) {
        const int lane = threadIdx.x % 32;
        heads = params.kv_heads;
        const int entries = by_kv_heads(params, params.batch);
        unsigned all = 0;
#pragma unroll 1
        for (int entry = lane; entry < entries; entry += 32) {
            all += tiles_of<T>(params, entry);
        }
        all = __reduce_add_sync(0xffffffffu, all);
        const unsigned groups = min(gridDim.x / heads, max(all / params.part_tiles, 1u));
        each = all / groups;
        larger = all - each * groups;
        if (group(params) >= groups) {
            share(params, 0, 0);
            return;
        }
        at = group(params) * each + min(group(params), larger);
        end = at + each + (group(params) < larger ? 1 : 0);
        int first = at;  // tile of those of the entries from `base` on
#pragma unroll 1
        for (int base = 0; base < entries; base += 32) {
            const int tiles = base + lane < entries ? tiles_of<T>(params, base + lane) : 0;
            const int together = __reduce_add_sync(0xffffffffu, tiles);
            if (first < together) {
                const LanePlace found(tiles, first);
                plane = (base + found.lane) * heads + int(blockIdx.x) % heads;
                take(params, found.within, __shfl_sync(0xffffffffu, tiles, found.lane));
                return;
            }
            first -= together;
        }
    }

    // On to the next entry.
    __device__ void advance(const FmhaParams& params) {
        if (at == end) {
            plane = -1;
            return;
        }
        plane += heads;
        take(params, 0, tiles_of<T>(params, entry_of(params, plane)));
    }

private:
    __device__ unsigned group(const FmhaParams& params) const { return by_kv_heads(params, blockIdx.x); }

    // What this CTA has of the plane's `tiles` tiles from `begin` on. Who has the first one says where the plane's
    // partial results are: group after group, behind one for each entry before. Where there are more planes than CTAs,
    // few have several: of each CTA the one that it has the first but not the last tile of.
    __device__ void take(const FmhaParams& params, int begin, int tiles) {
        const int own = min(unsigned(tiles - begin), end - at);
        const int part = plane + int(group(params)) * heads;
        span = {begin, begin + own, own == tiles ? -1 : part};
        const bool by_plane = params.batch <= int(gridDim.x);
        if (by_plane ? begin == 0 : at + own == end) {
            share(params, part, begin == 0 ? int(owner_of(at + tiles - 1) - group(params)) + 1 : 0);
        }
        at += own;
    }

    __device__ void share(const FmhaParams& params, int part, int splits) const {
        const bool by_plane = params.batch <= int(gridDim.x);
        if (threadIdx.x % 32 == 0 && !(by_plane && splits == 0)) {
            reinterpret_cast<int2*>(params.shares)[by_plane ? plane : int(blockIdx.x)] = make_int2(part, splits);
        }
    }

    __device__ unsigned owner_of(unsigned tile) const {
        const unsigned head = larger * (each + 1);
        return tile < head ? tile / (each + 1) : larger + (tile - head) / each;
    }
};

}  // namespace fmha::sm90
