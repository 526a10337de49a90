// Merges the partial results of a forward launch with splits: one CTA a row, four columns a thread, split 0 first.
#include <stdint.h>

#include "../common/outputs.cuh"
#include "fmha_params.h"
#include "ptx/control.cuh"

extern "C" __global__ void __launch_bounds__(128)
    fmha_combine_sm90(const __grid_constant__ FmhaParams params) {
    using namespace fmha;
    ptx::wait_for_primary();
    const int64_t rows = int64_t(params.t) * params.heads;
    const int64_t row = blockIdx.y * rows + blockIdx.x;
    const int64_t stride = params.batch * rows;
    float maximum = -kInfinity;
    for (int split = 0; split < params.splits; ++split) {
        maximum = fmaxf(maximum, params.partial_max[split * stride + row]);
    }
    float total = 0.0f;
    float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
    for (int split = 0; split < params.splits; ++split) {
        const int64_t part = split * stride + row;
        const float weight = merge_weight(params.partial_max[part], maximum);
        const float4 o = reinterpret_cast<const float4*>(params.partial_o)[part * blockDim.x + threadIdx.x];
        total += params.partial_sum[part] * weight;
        sum.x += o.x * weight;
        sum.y += o.y * weight;
        sum.z += o.z * weight;
        sum.w += o.w * weight;
    }
    const float scale = output_scale(params, int(blockIdx.x % params.heads), maximum, total);
    store_output(params, (row * blockDim.x + threadIdx.x) * 4,
                 make_float4(sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale));
    if (threadIdx.x == 0) {
        store_statistics(params, row, maximum, total);
    }
}
