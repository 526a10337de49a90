// y = x / sqrt(mean(x^2) + epsilon) * weight, a CTA a row.
#include <cuda_bf16.h>

#ifndef THREADS
#define THREADS 128
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    rmsnorm(const __nv_bfloat16* __restrict__ x, const float* __restrict__ weight, float* __restrict__ y, int columns,
            float epsilon) {
  __shared__ float partial[THREADS / 32];
  const __nv_bfloat16* row = x + static_cast<long long>(blockIdx.x) * columns;
  float sum = 0.0f;
  for (int column = threadIdx.x; column < columns; column += THREADS) {
    const float value = __bfloat162float(row[column]);
    sum += value * value;
  }
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < THREADS / 32; ++warp) total += partial[warp];
  const float scale = rsqrtf(total / static_cast<float>(columns) + epsilon);
  float* out = y + static_cast<long long>(blockIdx.x) * columns;
  for (int column = threadIdx.x; column < columns; column += THREADS) {
    out[column] = __bfloat162float(row[column]) * scale * weight[column];
  }
}
