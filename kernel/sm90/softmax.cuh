// The online softmax of the two rows of which a thread holds fragments, in registers. RowState is that of
// common/softmax.cuh, but its sum is over this thread's keys: the four threads of a row add theirs in the end. So may
// its maximum be, by raise_own_anchors.
#pragma once

#include "common/ptx/math.cuh"
#include "common/softmax.cuh"
#include "launch.h"

namespace fmha::sm90 {

// Over the four threads that share a row.
__device__ __forceinline__ void row_max(float (&x)[2]) {
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
        const float other[2] = {__shfl_xor_sync(0xffffffffu, x[0], distance),
                                __shfl_xor_sync(0xffffffffu, x[1], distance)};
        x[0] = fmaxf(x[0], other[0]);
        x[1] = fmaxf(x[1], other[1]);
    }
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

// raise_anchor of both rows, and one branch where neither anchor moves.
__device__ __forceinline__ void raise_anchors(RowState (&state)[2], const float (&tile_max)[2], float scale_log2,
                                              float (&factor)[2]) {
    bool stays = true;
    float maximum[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        maximum[half] = fmaxf(state[half].max, tile_max[half]);
        const float above = __fmul_rn(maximum[half], scale_log2) - state[half].anchor;
        stays = stays && state[half].max != -kInfinity && above <= kRescaleThreshold;
        factor[half] = 1.0f;
    }
    if (stays) {
        state[0].max = maximum[0];
        state[1].max = maximum[1];
        return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        factor[half] = raise_anchor(state[half], tile_max[half], scale_log2);
    }
}

// The same where each of a row's threads has the maximum of its own keys. They meet only where one in the warp is above
// what its anchor allows by more than `room`: kRescaleThreshold, or -inf while its row has seen no key. That is where
// raise_anchor would move an anchor, so the bits are those of raise_anchors. Whether an anchor may have moved, by the
// whole warp. The `First` tile of a row is where O is still zero and every anchor moves.
template <bool First>
__device__ __forceinline__ bool raise_own_anchors(RowState (&state)[2], float (&room)[2], const float (&tile_max)[2],
                                                  float scale_log2, float (&factor)[2]) {
    float maximum[2];
    bool moves = First;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        maximum[half] = fmaxf(state[half].max, tile_max[half]);
        moves = moves || !(__fmul_rn(maximum[half], scale_log2) - state[half].anchor <= room[half]);
        factor[half] = 1.0f;
    }
    const bool meet = First || ptx::any_lane(moves);
    if (meet) {
        row_max(maximum);
    }
    state[0].max = maximum[0];
    state[1].max = maximum[1];
    if (!meet) {
        return false;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        RowState& row = state[half];
        const float top = __fmul_rn(row.max, scale_log2);
        if (First ? row.max == -kInfinity : top - row.anchor <= room[half]) {
            continue;
        }
        if (!First && room[half] != -kInfinity) {
            factor[half] = ptx::exp2(row.anchor - top);
            row.sum *= factor[half];
        }
        row.anchor = top;
        room[half] = kRescaleThreshold;
    }
    return true;
}

// Two softmaxes of one row, each over keys of its own, go on from the higher of their anchors: what is relative to
// this one's shrinks by `mine`, what is relative to the other's by `theirs`.
__device__ __forceinline__ void meet_anchor(RowState& state, float other_max, float other_anchor, float& mine,
                                            float& theirs) {
    mine = theirs = 1.0f;
    if (other_max == -kInfinity) {
        return;  // what it has, is zero
    }
    const float above = other_anchor - state.anchor;
    if (state.max == -kInfinity) {
        state.anchor = other_anchor;
    } else if (above > 0.0f) {
        mine = ptx::exp2(-above);
        state.anchor = other_anchor;
        state.sum *= mine;
    } else if (above < 0.0f) {
        theirs = ptx::exp2(above);
    }
    state.max = fmaxf(state.max, other_max);
}

// Both halves of a packed pair of bf16, rounded again.
__device__ __forceinline__ uint32_t scaled_pair(uint32_t pair, float factor) {
    return ptx::pack_bf16x2(__uint_as_float(pair << 16) * factor, __uint_as_float(pair & 0xffff0000u) * factor);
}

// Turns the scores of row `half` into probabilities relative to the anchor and adds them to the sum.
template <int Count>
__device__ __forceinline__ void exponentiate(float (&s)[Count], int half, RowState& state, float scale_log2) {
    float chain[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < Count; i += 4) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            float& x = s[i + 2 * half + k];
            x = ptx::exp2(fmaf(x, scale_log2, -state.anchor));
            chain[k] += x;
        }
    }
    state.sum += chain[0] + chain[1];
}

}  // namespace fmha::sm90
