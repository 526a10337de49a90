// Kernels that change what they are given, as other people's do: in place, by atomics, on top of what was there.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

// Rotary embedding of rows x heads x dim in place: pairs (i, i + dim / 2) by an angle of the row.
extern "C" __global__ void rope(float *x, const float *angles, int heads, int dim) {
    const int half = dim / 2, row = blockIdx.x;
    for (int n = threadIdx.x; n < heads * half; n += blockDim.x) {
        const int at = (row * heads + n / half) * dim + n % half;
        const float c = cosf(angles[row * half + n % half]), s = sinf(angles[row * half + n % half]);
        const float a = x[at], b = x[at + half];
        x[at] = a * c - b * s;
        x[at + half] = a * s + b * c;
    }
}

extern "C" __global__ void adamw(float *p, float *m, float *v, const float *g, int n, float lr, float decay, int step) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    m[i] = 0.9f * m[i] + 0.1f * g[i];
    v[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
    const float a = m[i] / (1 - powf(0.9f, step)), b = v[i] / (1 - powf(0.999f, step));
    p[i] -= lr * (a / (sqrtf(b) + 1e-8f) + decay * p[i]);
}

namespace residual {
template <typename T> __global__ void add(T *x, const T *y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] + y[i];
}
template __global__ void add<float>(float *, const float *, int);
template __global__ void add<__nv_bfloat16>(__nv_bfloat16 *, const __nv_bfloat16 *, int);
}  // namespace residual

// C = A B + beta C.
template <int K> __global__ void gemm(const float *a, const float *b, float *c, int n, float beta) {
    const int row = blockIdx.x, column = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += a[row * K + k] * b[k * n + column];
    c[row * n + column] = sum + beta * c[row * n + column];
}
template __global__ void gemm<16>(const float *, const float *, float *, int, float);

extern "C" __global__ void histogram(const unsigned char *x, unsigned *bins, long long *total, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&bins[x[i]], 1u);
    atomicAdd((unsigned long long *)total, (unsigned long long)x[i]);
}

// A scale for each row, and the row as e4m3.
extern "C" __global__ void quantise(const __nv_bfloat16 *x, __nv_fp8_e4m3 *q, float *scale, int columns) {
    __shared__ float most[32];
    const int row = blockIdx.x;
    float largest = 0;
    for (int c = threadIdx.x; c < columns; c += 32) largest = fmaxf(largest, fabsf(__bfloat162float(x[row * columns + c])));
    most[threadIdx.x] = largest;
    __syncthreads();
    for (int k = 0; k < 32; k++) largest = fmaxf(largest, most[k]);
    const float s = largest / 448.0f;
    if (threadIdx.x == 0) scale[row] = s;
    for (int c = threadIdx.x; c < columns; c += 32) q[row * columns + c] = __nv_fp8_e4m3(__bfloat162float(x[row * columns + c]) / s);
}
