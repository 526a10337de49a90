// Balanced splits (FmhaParams::parts): where lengths differ, a long entry is divided among more CTAs than a short one.
// A CTA, or a pair of them, has one portion: as many tiles of one entry as most others have of theirs.
//
// Who has what follows from the lengths alone, which each warp reads for itself. The heads of an entry and its row
// tiles are divided alike: grid (row tiles, portions, K/V heads), in which a row tile may be a pair's.
#pragma once

#include <stdint.h>

#include "common/lanes.cuh"
#include "common/ptx/warp.cuh"
#include "common/work.cuh"
#include "fmha_params.h"

// Whether a kernel knows them. One that does not has none of their code.
#ifndef FMHA_BALANCES
#define FMHA_BALANCES 0
#endif

namespace fmha {

__device__ __forceinline__ bool balanced(const FmhaParams& params) { return FMHA_BALANCES && params.parts > 0; }

// Whether make_work reads memory, and not only the parameters.
__device__ __forceinline__ bool work_in_memory(const FmhaParams& params) {
    return scattered(params) || params.kv_lens || params.query_offsets || params.sparse_lens;
}

// Which of the `of` portions of an entry, which follow one another.
struct Portion {
    int entry = -1;  // negative: there is none left
    int kv_len = 0;  // of the entry
    int split = 0;
    int of = 1;
};

// Tiles of `Keys` keys of the entries that a lane has: lane, lane + 32 and so on.
template <int Keys>
struct EntryTiles {
    const FmhaParams& params;
    int entries;
    int kv_len;  // of the lane's first entry, which is kept: few calls have more than 32

    // Negative behind the last entry.
    __device__ __forceinline__ int length(int entry) const { return entry < entries ? keys_of(params, entry) : -1; }

    __device__ __forceinline__ explicit EntryTiles(const FmhaParams& params)
        : params(params),
          entries(quotient(params.batch, params.kv_heads_multiplier, params.kv_heads_shift)),
          kv_len(length(threadIdx.x % 32)) {}

    // One without keys has one, since somebody must store its rows.
    static __device__ __forceinline__ int tiles(int length) {
        return length < 0 ? 0 : max((unsigned(length) + Keys - 1) / Keys, 1u);
    }

    // Portions of all entries, of `most` tiles each at most.
    __device__ __forceinline__ int portions(int most) const {
        int count = ceil_div(tiles(kv_len), most);
#pragma unroll 1
        for (int entry = threadIdx.x % 32 + 32; entry < entries; entry += 32) {
            count += ceil_div(tiles(length(entry)), most);
        }
        return __reduce_add_sync(0xffffffffu, count);
    }
};

// Portion `number` of `count`, which are no fewer than entries, by the whole warp: once lengths may be read. Portions
// have as few tiles at most as leave enough of them for all entries, but part_tiles at least.
template <int Keys>
__device__ __forceinline__ Portion portion_of(const FmhaParams& params, int number, int count) {
    const EntryTiles<Keys> entries(params);
    const int all = entries.portions(1);
    // As many tiles would do if all portions were full; and do although the last one of each entry lacks some.
    int least = max(ceil_div(all, count), params.part_tiles);
    int most = max(ceil_div(all, count + 1 - entries.entries), least);
#pragma unroll 1
    while (least < most) {
        const int middle = (least + most) / 2;
        if (entries.portions(middle) <= count) {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    int kv_len = entries.kv_len;
#pragma unroll 1
    for (int base = 0; base < entries.entries; base += 32) {
        if (base > 0) {
            kv_len = entries.length(base + int(threadIdx.x % 32));
        }
        const int own = ceil_div(entries.tiles(kv_len), most);
        const int together = __reduce_add_sync(0xffffffffu, own);
        if (number < together) {
            const LanePlace found(own, number);
            return {base + found.lane, __shfl_sync(0xffffffffu, kv_len, found.lane), found.within,
                    __shfl_sync(0xffffffffu, own, found.lane)};
        }
        number -= together;
    }
    return {};
}

// What a portion has of row tile `block` of its plane, of a launch whose `splits` are 1. Its `split` becomes the number
// of its part, which are kv_heads apart, or is negative where it has all tiles of the plane: then the result of its
// rows is stored here.
__device__ __forceinline__ Work portion_work(const FmhaParams& params, int rows, int keys, int block,
                                             const Portion& portion) {
    if (portion.entry < 0) {
        return {};
    }
    const int heads = gridDim.z, head = blockIdx.z;
    Work work = make_work(params, rows, keys, block, 0, portion.entry * heads + head, portion.kv_len);
    // Evenly, and the last ones have what is left over: the first one's first tile is seldom full, and takes a mask.
    const int each = work.tiles / portion.of, smaller = portion.of - (work.tiles - each * portion.of);
    work.first_tile = portion.split * each + max(portion.split - smaller, 0);
    // None behind the last query of the entry, where nobody's rows would see them.
    work.tiles = work.rows > 0 ? each + (portion.split >= smaller ? 1 : 0) : 0;
    work.split = portion.of > 1 ? int(blockIdx.y) * heads + head : -1;
    return work;
}

// Tells the merge where the parts of a plane begin and how many there are, 1 where it has nothing to do. Behind the
// wait for the grid before, whose merge may still read what is overwritten.
__device__ __forceinline__ void tell_merge(const FmhaParams& params, const Portion& portion) {
    if (balanced(params) && portion.split == 0 && portion.entry >= 0 && threadIdx.x == 0 && blockIdx.x == 0) {
        const int heads = gridDim.z, head = blockIdx.z;
        reinterpret_cast<int2*>(params.shares)[portion.entry * heads + head] =
            make_int2(int(blockIdx.y) * heads + head, portion.of);
    }
}

// The number of a CTA's part of a plane among those of all planes; without parts, that of its plane.
__device__ __forceinline__ int64_t part_of(const FmhaParams& params, const Work& work) {
    return balanced(params) ? max(work.split, 0) : int64_t(work.split) * params.batch + work.batch;
}

// How many of them there is room for.
__device__ __forceinline__ int64_t parts_of(const FmhaParams& params) {
    return balanced(params) ? params.parts : int64_t(params.splits) * params.batch;
}

}  // namespace fmha
