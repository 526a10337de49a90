// Which row tiles a CTA takes, and in which order. Plain C++17: a host compiler reads it too.
//
// Every CTA of the grid has one row tile a turn. Without a mask all take as long: planes follow one another, so that
// neighbours read the same K and V. Under a mask the longest go first, and every other turn deals in the opposite
// direction: who had the longest of one turn has the shortest of the next. The planes of a section, half as many as
// CTAs, go side by side, so that at least two CTAs at once read a plane's K and V.
#pragma once

#include <stdint.h>

#include "common/work.cuh"

namespace fmha {

struct RowTile {
    int32_t block;  // of the plane's row tiles; -1: there is none left
    int32_t plane;
};

FMHA_HOST_DEVICE inline RowTile row_tile(const FmhaParams& params, int32_t rows, int32_t ctas, int32_t cta,
                                         int32_t turn) {
    const int32_t blocks = ceil_div(params.t * params.heads, rows);
    const bool masked = params.window_left != kFmhaUnlimited || params.window_right != kFmhaUnlimited;
    const int32_t place = turn * ctas + (masked && turn % 2 ? ctas - 1 - cta : cta);
    if (place >= blocks * params.batch) {
        return {-1, 0};
    }
    if (!masked) {
        return {place % blocks, place / blocks};
    }
    const int32_t planes = ctas > 2 ? ctas / 2 : 1;  // of a section
    const int32_t section = place / (planes * blocks), before = section * planes;
    const int32_t own = place - before * blocks;
    const int32_t side_by_side = params.batch - before < planes ? params.batch - before : planes;
    return {blocks - 1 - own / side_by_side, before + own % side_by_side};
}

}  // namespace fmha
