// The online softmax of one row, or of one thread's share of it, in registers. Knows no tensor core and no barrier.
#pragma once

#include "common/ptx/math.cuh"
#include "common/ptx/warp.cuh"

namespace fmha {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kInfinity = __builtin_huge_valf();

// What was accumulated is rescaled only once the maximum has grown by more than this, in log2: probabilities reach 2^8,
// which costs bf16 and fp32 no precision, and most tiles need no rescale.
constexpr float kRescaleThreshold = 8.0f;

// The softmax of one row so far. Probabilities 2^(q.k scale_log2 - anchor), their sum and O are relative to the anchor.
struct RowState {
    float max = -kInfinity;  // of q.k, not scaled
    float anchor = 0.0f;     // log2 units; 0 while no key was seen, so that 2^(-inf - anchor) is 0 and not NaN
    float sum = 0.0f;
};

// Four independent chains hide the latency of the operation; in the sum they also keep the rounding error down.
template <int Keys>
__device__ __forceinline__ float max_of(const float (&row)[Keys]) {
    float chain[4] = {row[0], row[1], row[2], row[3]};
#pragma unroll
    for (int i = 4; i < Keys; ++i) {
        chain[i % 4] = fmaxf(chain[i % 4], row[i]);
    }
    return fmaxf(fmaxf(chain[0], chain[1]), fmaxf(chain[2], chain[3]));
}

template <int Keys>
__device__ __forceinline__ float sum_of(const float (&row)[Keys]) {
    float chain[4] = {row[0], row[1], row[2], row[3]};
#pragma unroll
    for (int i = 4; i < Keys; ++i) {
        chain[i % 4] += row[i];
    }
    return (chain[0] + chain[1]) + (chain[2] + chain[3]);
}

// Keeps the keys [first, end) of the tile, which may lie outside of it.
template <int Keys>
__device__ __forceinline__ void mask_range(float (&row)[Keys], int first, int end) {
    const unsigned count = max(end - first, 0);
#pragma unroll
    for (int i = 0; i < Keys; ++i) {
        row[i] = unsigned(i - first) < count ? row[i] : -kInfinity;
    }
}

// The same by the whole warp, with a look at eight keys together first: of most of them every row sees all.
template <int Keys, int Key = 0>
__device__ __forceinline__ void mask_range_by_eight(float (&row)[Keys], int first, int end) {
    if constexpr (Key < Keys) {
        if (ptx::any_lane(first > Key || end < Key + 8)) {
            ptx::keep_between<Key>(row + Key, first, end, -kInfinity);
        }
        mask_range_by_eight<Keys, Key + 8>(row, first, end);
    }
}

// Keeps the keys whose bit is set.
template <int Keys>
__device__ __forceinline__ void mask_bits(float (&row)[Keys], const uint32_t (&bits)[Keys / 32]) {
#pragma unroll
    for (int i = 0; i < Keys; ++i) {
        row[i] = bits[i / 32] >> (i % 32) & 1 ? row[i] : -kInfinity;
    }
}

// Takes the maximum of a tile into account. Returns the factor by which everything accumulated so far shrinks: exactly
// 1 unless the anchor moves.
__device__ __forceinline__ float raise_anchor(RowState& state, float tile_max, float scale_log2) {
    const bool nothing_seen = state.max == -kInfinity;
    state.max = fmaxf(state.max, tile_max);
    const float top = __fmul_rn(state.max, scale_log2);
    if (nothing_seen) {
        state.anchor = state.max == -kInfinity ? 0.0f : top;
        return 1.0f;  // what there is, is zero
    }
    if (top - state.anchor <= kRescaleThreshold) {
        return 1.0f;
    }
    const float factor = ptx::exp2(state.anchor - top);
    state.anchor = top;
    state.sum *= factor;
    return factor;
}

// Turns a tile of q.k into probabilities and adds them to the sum.
//
// The sum takes the fp32 probabilities, not the bf16 ones that the tensor core sees: row_sum and LSE are outputs with a
// tolerance of their own, and over keys the roundings of P average out of O / row_sum.
template <int Keys>
__device__ __forceinline__ void exponentiate(float (&row)[Keys], RowState& state, float scale_log2) {
#pragma unroll
    for (int i = 0; i < Keys; ++i) {
        row[i] = ptx::exp2(fmaf(row[i], scale_log2, -state.anchor));
    }
    state.sum += sum_of(row);
}

// 2^(anchor - max * scale_log2): from the anchor to the true maximum. The fma rounds once, so that the anchor's own
// rounding is undone as well. A row that has seen nothing keeps its zeros.
__device__ __forceinline__ float anchor_to_max(const RowState& state, float scale_log2) {
    return state.max == -kInfinity ? 0.0f : ptx::exp2(-fmaf(state.max, scale_log2, -state.anchor));
}

}  // namespace fmha
