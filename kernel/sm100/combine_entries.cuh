// The entries of the combine kernels, in every module whose forward kernel has splits. `Forward` is its traits.
#pragma once

#include "combine.cuh"

namespace fmha {

using WarpTeam = Team<FMHA_HEAD_DIM, Forward::kOutputChunk, 1, (FMHA_HEAD_DIM < 256 ? FMHA_HEAD_DIM : 256), 5, 3, 8>;
using CtaTeam = Team<FMHA_HEAD_DIM, Forward::kOutputChunk, kFmhaCombineRows, 32, 5, 5, 5>;

}  // namespace fmha

#define FMHA_COMBINE(name, team, by_head)                                                     \
    extern "C" __global__ void __launch_bounds__(kFmhaCombineThreads, fmha::team::kCtasPerSm) \
        name(const __grid_constant__ FmhaParams params) {                                     \
        fmha::combine<fmha::team, by_head>(params);                                           \
    }
FMHA_COMBINE(fmha_combine, WarpTeam, false)
FMHA_COMBINE(fmha_combine_heads, WarpTeam, true)
FMHA_COMBINE(fmha_combine_many, CtaTeam, false)
FMHA_COMBINE(fmha_combine_many_heads, CtaTeam, true)
#undef FMHA_COMBINE
