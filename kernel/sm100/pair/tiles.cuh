// The tiles of keys of a pair's row tiles, one after the other, and a CTA's own rows of them.
#pragma once

#include <stdint.h>

#include "common/work.cuh"
#include "sm100/prefill/row_tiles.cuh"

namespace fmha {

// Goes through all tiles of keys, from one row tile into the next.
template <class Traits>
struct KeyTiles {
    RowTiles<Traits> row_tiles;
    Work work{};
    int tile = 0;  // of the row tile
    int left = 0;  // of the row tile, this one among them

    __device__ bool next(const FmhaParams& params) {
        tile += 1;
        left -= 1;
        if (left <= 0) {
            if (!row_tiles.next_with_keys(params, work)) {
                return false;
            }
            tile = 0;
            left = work.tiles;
        }
        return true;
    }
    __device__ bool first() const { return tile == 0; }
    __device__ bool last() const { return left == 1; }
};

// A place in the ring, as who goes through it counts.
template <int Slots>
struct RingPlace {
    int slot = 0;
    uint32_t parity = 0;  // of the phase that this use of the slot completes

    __device__ void advance() {
        slot += 1;
        if (slot == Slots) {
            slot = 0;
            parity ^= 1;
        }
    }
};

// The same work, of the rows that CTA `rank` of the pair has: none of their own, or less, where it is behind the last.
template <class Traits>
__device__ __forceinline__ Work of_cta(Work work, int rank) {
    work.first_row += rank * Traits::kRows;
    work.rows -= rank * Traits::kRows;
    return work;
}

}  // namespace fmha
