// The roles of a CTA's warps. Each warp has one for the whole kernel.
#pragma once

#include "traits.cuh"

namespace fmha::sm90 {

// Warpgroups: C of consumers, then one that loads. Of a CTA with R rings
//
//   consumers 0 .. C - 1      products, softmax and epilogue, of 64 rows each or of half of O's columns (consume.cuh)
//   loading warps 0 .. R - 1  producers, one a ring: Q, K and V by TMA (produce.cuh)
//   R                         preparer: barriers and idle rows of Q (produce.cuh), then tails (tails.cuh)
//   R + 1                     with orders by length: who looks for row tiles (order.cuh)
//   the others                none: a warpgroup's register budget is set by all of its warps
template <class T>
struct LoadingWarps {
    static constexpr int kProducers = T::kRings;
    static constexpr int kPreparer = kProducers;
    static constexpr int kOrderer = kPreparer + 1;
    static_assert(kOrderer < 4, "a warpgroup has four warps");
    static constexpr bool kHasOrderer = T::kPolicy.row_tiles == RowTiles::kByLength;
};

}  // namespace fmha::sm90
