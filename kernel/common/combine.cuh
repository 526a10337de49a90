// What the merge of splits counts each of them for. docs/understand/semantics.md, "Merging".
#pragma once

#include "common/ptx/math.cuh"
#include "common/softmax.cuh"

namespace fmha {

// e^(max of the split - max), which is what the split's parts count for; 0 for a split without keys.
__device__ __forceinline__ float split_weight(float split_max, float max) {
    return split_max == -kInfinity ? 0.0f : ptx::exp2((split_max - max) * kLog2E);
}

}  // namespace fmha
