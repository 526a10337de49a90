// The online softmax of the two rows of which a thread holds fragments, in registers.
#pragma once

#include "common/ptx/math.cuh"
#include "common/row_output.cuh"

namespace fmha::sm90 {

// max: of q.k, not scaled. sum: of exp(scale * (q.k - max)) over this thread's keys; the four threads of a row add
// theirs in the end.
struct RowState {
    float max = -kInfinity;
    float sum = 0.0f;
};

// Over the four threads that share a row.
__device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Of row `half` (0, or 1 for the row 8 further down): its elements are i with i / 2 % 2 == half.
template <int Count>
__device__ __forceinline__ float fragment_max(const float (&s)[Count], int half) {
    float chain[2] = {s[2 * half], s[2 * half + 1]};
#pragma unroll
    for (int i = 4; i < Count; i += 4) {
        chain[0] = fmaxf(chain[0], s[i + 2 * half]);
        chain[1] = fmaxf(chain[1], s[i + 2 * half + 1]);
    }
    return fmaxf(chain[0], chain[1]);
}

// Turns scores into probabilities against the maximum `new_max` and adds them to the sum. Returns the factor by which
// everything accumulated before shrinks; exactly 1 when the maximum stays.
template <int Count>
__device__ __forceinline__ float softmax_step(float (&s)[Count], int half, RowState& state, float new_max,
                                              float scale_log2) {
    // While a row has seen no finite score its maximum is -inf; anchored at 0 it gives exp2(-inf) = 0, where
    // -inf - -inf would be NaN.
    const float anchor = new_max == -kInfinity ? 0.0f : __fmul_rn(new_max, scale_log2);
    // Both products rounded alike (no contraction to fma), so that equal maxima cancel exactly.
    const float factor = ptx::exp2(__fmul_rn(state.max, scale_log2) - anchor);
    float chain[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < Count; i += 4) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            float& x = s[i + 2 * half + k];
            x = ptx::exp2(fmaf(x, scale_log2, -anchor));
            chain[k] += x;
        }
    }
    state.max = new_max;
    state.sum = fmaf(state.sum, factor, chain[0] + chain[1]);
    return factor;
}

}  // namespace fmha::sm90
