// The online softmax of one row, in one thread's registers. Knows neither TMEM nor barriers.
#pragma once

#include "ptx/math.cuh"

namespace fmha {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;
constexpr float kInfinity = __builtin_huge_valf();

// The softmax of one row so far: sum = sum exp(scale * (q.k - max)).
struct RowState {
    float max = -kInfinity;  // of q.k, not scaled
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

// Keys past the sequence read as zero, which is a score like any other until it is masked.
template <int Keys>
__device__ __forceinline__ void mask_tail(float (&row)[Keys], int valid_keys) {
#pragma unroll
    for (int i = 0; i < Keys; ++i) {
        row[i] = i < valid_keys ? row[i] : -kInfinity;
    }
}

// Turns a tile of q.k into probabilities against the running maximum and adds them to the running sum. Returns the
// factor by which everything accumulated before shrinks; exactly 1 when the maximum stays.
//
// The sum takes the fp32 probabilities, not the bf16 ones the MMA sees: row_sum and LSE are outputs with a tolerance of
// their own, and over keys the roundings of P average out of O / row_sum.
template <int Keys>
__device__ __forceinline__ float softmax_step(float (&row)[Keys], RowState& state, float scale_log2) {
    const float new_max = fmaxf(state.max, max_of(row));
    // While a row has seen no finite score its maximum is -inf; anchored at 0 it gives exp2(-inf) = 0, where
    // -inf - -inf would be NaN.
    const float anchor = new_max == -kInfinity ? 0.0f : __fmul_rn(new_max, scale_log2);
    // Both products rounded alike (no contraction to fma), so that equal maxima cancel exactly.
    const float factor = ptx::exp2(__fmul_rn(state.max, scale_log2) - anchor);
#pragma unroll
    for (int i = 0; i < Keys; ++i) {
        row[i] = ptx::exp2(fmaf(row[i], scale_log2, -anchor));
    }
    state.max = new_max;
    state.sum = fmaf(state.sum, factor, sum_of(row));
    return factor;
}

}  // namespace fmha
