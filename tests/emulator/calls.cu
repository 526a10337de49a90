// Kernels that exercise the call ABI, local arrays, indexed branches, printf and assert. test_scalar_calls.py compiles it.
#include <cassert>
#include <cstdio>

struct Big {
    int v[6];
    float f;
};

__device__ __noinline__ int helper(int a, int b, int* out) {
    if (a > b) {
        *out = a;
        return a - b;
    }
    *out = b;
    return b * 3;
}

__device__ __noinline__ float in_local_memory(const float* p, int n, int k) {
    float t[8];
    for (int i = 0; i < 8; i++) t[i] = p[i % n] * i;
    return t[k & 7] + t[(k + 3) & 7];
}

__device__ __noinline__ Big by_value(Big b, int k) {
    b.v[k % 6] += k;
    b.f *= 2.0f;
    return b;
}

__device__ __noinline__ int choose(int x) {
    switch (x) {
        case 0: return x * 7 + 1;
        case 1: return x ^ 0x55;
        case 2: return 100 / (x + 1);
        case 3: return -x;
        case 4: return x << 5;
        case 5: return __popc(x * 12345);
        case 6: return 42;
        case 7: return x * x * x;
        default: return -1;
    }
}

__device__ __noinline__ int nested(int a) {
    int o;
    int r = helper(a, 5, &o);
    return r + o + choose(a & 7);
}

extern "C" __global__ void calls(int* out, const float* in, float* fout) {
    int t = threadIdx.x, o = 0;
    out[t * 4] = helper(t, 10, &o);
    out[t * 4 + 1] = o;
    out[t * 4 + 2] = choose(t % 10);
    out[t * 4 + 3] = nested(t);
    fout[t] = in_local_memory(in, 5, t);
    Big b;
    for (int i = 0; i < 6; i++) b.v[i] = t + i;
    b.f = t;
    b = by_value(b, t);
    int s = 0;
    for (int i = 0; i < 6; i++) s += b.v[i] * (i + 1);
    fout[32 + t] = s + b.f;
}

extern "C" __global__ void prints(int n, double d) {
    if (threadIdx.x < 2) printf("t=%d n=%5d d=%.3f %s %x %lld%%", threadIdx.x, n, d, "text", 255u, (long long)n << 33);
}

extern "C" __global__ void asserts(int n) { assert(n < 5 && "too large"); }

typedef int (*Function)(int);
__device__ __noinline__ int increment(int x) { return x + 1; }
__device__ __noinline__ int twice(int x) { return x * 2; }
extern "C" __global__ void indirect(int* out, int n) {
    Function f = threadIdx.x % n ? increment : twice;
    out[threadIdx.x] = f(threadIdx.x);
}

extern "C" __global__ void histogram(const unsigned char* in, int n, unsigned* bins, unsigned* done, unsigned* last) {
    __shared__ unsigned local[16];
    if (threadIdx.x < 16) local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[in[i] & 15], 1u);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
    __threadfence();
    if (threadIdx.x == 0) *last = atomicInc(done, gridDim.x - 1);
}

__device__ int words[4] = {1, 2, 3, 4};
__device__ int* halves[2] = {words, words + 2};
__device__ Function functions[2] = {increment, twice};
extern "C" __global__ void tables(int* out) {
    out[threadIdx.x] = *halves[threadIdx.x & 1] + 10 * functions[threadIdx.x & 1](threadIdx.x);
}

__device__ __noinline__ int sum_backwards(int n) {
    int *p = static_cast<int*>(alloca(4 * n)), s = 0;
    for (int i = 0; i < n; i++) p[i] = i * threadIdx.x;
    for (int i = n; i-- > 0;) s = 2 * s + p[i];
    return s;
}
// A thousand frames of up to 40 bytes: more than the stack holds, were they not given back.
extern "C" __global__ void frames(int* out, int least, int n) {
    int s = 0;
    for (int i = 0; i < 1000; i++) s ^= sum_backwards(least + (i + threadIdx.x) % n);
    out[threadIdx.x] = s;
}
