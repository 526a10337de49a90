// The C ABI of every forward kernel: one parameter struct, passed as `const __grid_constant__ FmhaParams`.
//
// Tensors are contiguous. Q [batch, t, head_dim], K and V [batch, s_k, head_dim] in bf16; O [batch, t, head_dim] fp32,
// un-normalised; row_max, row_sum and lse [batch, t] fp32, in natural-log units:
//   s = scale * q.k    row_max = max s    row_sum = sum exp(s - row_max)    o = sum exp(s - row_max) v
//   lse = row_max + ln(row_sum)
#pragma once

#include <stdint.h>

// The 128 opaque bytes of a CUtensorMap, so that neither host nor device code needs the driver's header.
struct alignas(64) FmhaTensorMap {
    uint64_t opaque[16];
};

struct FmhaParams {
    FmhaTensorMap q;  // {head_dim, t, batch}, box {64, 128, 1}, 128-byte swizzle, out of bounds reads as zero
    FmhaTensorMap k;  // {head_dim, s_k, batch}, box {64, 128, 1}, likewise
    FmhaTensorMap v;  // as k
    float* o;
    float* row_max;
    float* row_sum;
    float* lse;
    int32_t t;
    int32_t s_k;
    float scale;  // multiplies q.k, natural-log units
    int32_t reserved;
};
