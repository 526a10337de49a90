// The row tiles of a CTA, or of a pair of CTAs, one after the other: each role goes through them by itself.
#pragma once

#include <stdint.h>

#include "common/work.cuh"
#include "sm100/portions.cuh"
#include "sm100/prefill/order.cuh"

namespace fmha {

// Goes through the row tiles that have rows of their own: with packed queries some are behind the last query of
// their entry.
template <class Traits>
struct RowTiles {
    int32_t turn = 0;
    Portion portion{};  // with balanced splits: of its plane there is one row tile to go through

    __device__ bool next(const FmhaParams& params, Work& work) {
        if (balanced(params)) {
            if (turn++ > 0) {
                return false;
            }
            const int block = blockIdx.x / Traits::kCtas;
            work = portion_work(params, Traits::kRowTile, Traits::kKeys, block, portion);
            return work.rows > 0;
        }
        for (;;) {
            const RowTile tile =
                row_tile(params, Traits::kRowTile, gridDim.x / Traits::kCtas, blockIdx.x / Traits::kCtas, turn);
            if (tile.block < 0) {
                return false;
            }
            turn += 1;
            work = make_work(params, Traits::kRowTile, Traits::kKeys, tile.block, blockIdx.y, tile.plane);
            if (work.rows > 0) {
                return true;
            }
        }
    }

    // The same of row tiles that see a key: others are neither loaded nor multiplied.
    __device__ bool next_with_keys(const FmhaParams& params, Work& work) {
        do {
            if (!next(params, work)) {
                return false;
            }
        } while (work.tiles == 0);
        return true;
    }
};

}  // namespace fmha
