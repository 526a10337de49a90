// What a kernel does, by its head_dim, its rows and what it is built to know: the choices that its code is divided by.
#pragma once

#include "common/work.cuh"
#include "launch.h"

namespace fmha::sm90 {

// How a consumer warpgroup goes through the tiles of keys.
enum class Loop {
    kInTurn,       // S_j, its softmax, O += P_j V_j; what overlaps is the work of other warpgroups (rounds.cuh)
    kOverlapped,   // S_j and its softmax beside O += P_{j-1} V_{j-1}, of one row tile: decode (rounds.cuh)
    kWalking,      // the same of one row tile after another: prefill (walking.cuh)
    kAlternating,  // two warpgroups, each of half of O's columns, have the tiles of S in turn (alternate.cuh)
};

// Who says which row tiles a CTA has.
enum class RowTiles {
    kOwn,       // its place in the grid: one
    kDrawn,     // the producer, which draws the further ones from a count in memory
    kByLength,  // order_role, which looks at lengths as well
};

struct Policy {
    Loop loop;
    RowTiles row_tiles;
    bool balances;      // splits may be balanced: parts.cuh
    bool begins_ahead;  // with the next row tile before this one is stored
    bool asks_early;    // for the row tile behind a short one
    // Tails of V have a warp that clears them, so that the producer loads what is next meanwhile: with packed sequences
    // and with balanced splits most row tiles have one.
    bool tail_warp;
    // Turns at the tensor core pay where a tile's exponentials take about as long as its products, and in long loops,
    // where row groups without them come to do the same at the same time.
    bool turns;
};

constexpr Policy policy_of(int32_t head_dim) {
    const FmhaSm90Launch launch = fmha_sm90_launch(head_dim);
    const bool overlaps = fmha_sm90_overlap(head_dim);
    const bool walks = kFmhaSm90Walks && launch.column_groups == 1 && overlaps;
    const bool by_length = walks && kFmhaSm90ByLength;
    return {.loop = launch.column_groups == 2 ? Loop::kAlternating
                    : walks                   ? Loop::kWalking
                    : overlaps                ? Loop::kOverlapped
                                              : Loop::kInTurn,
            .row_tiles = by_length ? RowTiles::kByLength
                         : walks   ? RowTiles::kDrawn
                                   : RowTiles::kOwn,
            .balances = by_length && kFmhaSm90Balances,
            .begins_ahead = walks && head_dim <= 128,
            .asks_early = by_length && kPaged,
            .tail_warp = walks && (kPaged || by_length),
            .turns = walks && (head_dim <= 128 || FMHA_ROWS == 128) && launch.row_groups > 1};
}

}  // namespace fmha::sm90
