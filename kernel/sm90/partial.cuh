// Partial results in f16: each row of each column group over a power of two of its own.
#pragma once

#include "common/partial.cuh"
#include "fmha_params.h"
#include "launch.h"
#include "parts.cuh"

namespace fmha::sm90 {

// Parts of head_dim that have scales of their own.
template <int HeadDim>
constexpr int kPartialScales = fmha_sm90_launch(HeadDim).column_groups;

// [partial_rows, kPartialScales], behind the elements.
template <int HeadDim>
__device__ __forceinline__ float* partial_scales(const FmhaParams& params) {
    return params.partial_o + partial_rows(params) * (HeadDim / 2);
}

}  // namespace fmha::sm90
