// C = A B^T in bf16 with float32 sums, on mma.sync: a warp has a tile of 16 by 8, a CTA of kWarps warps one of
// 16 kWarps by 8 N_TILES. A is [m, k], B is [n, k], both with k innermost; C is [m, n].
#include <cuda_bf16.h>
#include <cstdint>

#ifndef N_TILES
#define N_TILES 4
#endif

namespace {

constexpr int kWarps = 4;
constexpr int kRows = 16 * kWarps;
constexpr int kColumns = 8 * N_TILES;
constexpr int kDepth = 32;        // of k that lies in shared memory at a time
constexpr int kPitch = kDepth + 8;  // a row's elements: rows 80 bytes apart, which spreads them over the banks

__device__ void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ void load(__nv_bfloat16* to, const __nv_bfloat16* from, int rows, int first, int limit, int k, int depth) {
  for (int at = threadIdx.x; at < rows * kDepth; at += blockDim.x) {
    const int row = at / kDepth, column = at % kDepth;
    const bool inside = first + row < limit && k + column < depth;
    to[row * kPitch + column] =
        inside ? from[static_cast<long long>(first + row) * depth + k + column] : __float2bfloat16(0.0f);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    gemm(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ b, float* __restrict__ c, int m, int n,
         int depth) {
  __shared__ __align__(16) __nv_bfloat16 tile_a[kRows * kPitch];
  __shared__ __align__(16) __nv_bfloat16 tile_b[kColumns * kPitch];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group = lane / 4, pair = lane % 4 * 2;
  const int first_row = blockIdx.x * kRows, first_column = blockIdx.y * kColumns;
  float sums[N_TILES][4] = {};
  for (int k = 0; k < depth; k += kDepth) {
    load(tile_a, a, kRows, first_row, m, k, depth);
    load(tile_b, b, kColumns, first_column, n, k, depth);
    __syncthreads();
    for (int step = 0; step < kDepth; step += 16) {
      const __nv_bfloat16* rows = tile_a + (warp * 16 + group) * kPitch + step + pair;
      const uint32_t left[4] = {
          *reinterpret_cast<const uint32_t*>(rows), *reinterpret_cast<const uint32_t*>(rows + 8 * kPitch),
          *reinterpret_cast<const uint32_t*>(rows + 8), *reinterpret_cast<const uint32_t*>(rows + 8 * kPitch + 8)};
      for (int tile = 0; tile < N_TILES; ++tile) {
        const __nv_bfloat16* columns = tile_b + (tile * 8 + group) * kPitch + step + pair;
        const uint32_t right[2] = {*reinterpret_cast<const uint32_t*>(columns),
                                   *reinterpret_cast<const uint32_t*>(columns + 8)};
        mma(sums[tile], left, right);
      }
    }
    __syncthreads();
  }
  for (int tile = 0; tile < N_TILES; ++tile) {
    for (int at = 0; at < 4; ++at) {
      const int row = first_row + warp * 16 + group + at / 2 * 8;
      const int column = first_column + tile * 8 + pair + at % 2;
      if (row < m && column < n) c[static_cast<long long>(row) * n + column] = sums[tile][at];
    }
  }
}
