// Mistakes that have been reported of frameworks for machine learning: docs/reference/reports.md.
#include "reports.cuh"

// pytorch/pytorch#128455: the last block reads what others have written, with no fence behind its count.
__global__ void two_stages(const float* in, float* out, bool right) {
    __shared__ bool last;
    const int t = threadIdx.x;
    float* const parts = out + 384;
    unsigned* const done = reinterpret_cast<unsigned*>(out + 64);
    if (t == 0) parts[blockIdx.x] = in[blockIdx.x] * 2;
    if (t == 0) {
        __threadfence();
        last = atomicAdd(done, 1) == gridDim.x - 1;
        if (right) __threadfence();
    }
    __syncthreads();
    if (last && t < gridDim.x) out[t] = parts[t];
}

// NVIDIA/Fuser#2391: blocks take turns at a semaphore that is given on with no fence behind what a block has added.
__global__ void serialize(const float* in, float* out, bool right) {
    const int t = threadIdx.x;
    unsigned* const turn = reinterpret_cast<unsigned*>(out + 64);
    if (t == 0)
        while (atomicAdd(turn, 0) != blockIdx.x) {
        }
    if (t == 0) __threadfence();
    __syncthreads();
    out[t] += in[64 * blockIdx.x + t];
    if (right) __threadfence();
    __syncthreads();
    if (t == 0) atomicExch(turn, blockIdx.x + 1);
}

// NVIDIA/raft#3041: a block counts itself as finished before all of its threads have added to the histogram.
__global__ void select_k(const float* in, float* out, bool right) {
    __shared__ bool last;
    const int t = threadIdx.x;
    unsigned* const finished = reinterpret_cast<unsigned*>(out + 64);
    out[128 + 64 * blockIdx.x + t] = in[t];
    __threadfence();
    if (right) __syncthreads();
    if (t == 0) {
        last = atomicAdd(finished, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (last) out[t] = out[128 + t] + out[192 + t];
}

// pytorch/FBGEMM#5857: threads behind the end return before a barrier of the block.
__global__ void quantize_mx4(const float* in, float* out, bool right) {
    __shared__ float largest[128];
    const int t = threadIdx.x, n = 96;
    if (!right && t >= n) return;
    largest[t] = t < n ? in[t] : 0;
    __syncthreads();
    if (t < n) out[t] = largest[t] / (1 + largest[t / 32 * 32]);
}

// microsoft/onnxruntime#28108: a row's offset has more than 32 bits.
__global__ void gather(const float* in, float* out, bool right) {
    const int t = threadIdx.x, columns = 8960, row = 239674 + static_cast<int>(in[0]);
    const long long wide = static_cast<long long>(row) * columns;
    const int narrow = static_cast<int>(static_cast<unsigned>(row) * columns);
    const long long begin = wide - wide / 256 * 256;
    out[t] = in[right ? begin + t : narrow + t];
}

// apache/mahout#1108: samples of odd length are read two numbers at a time.
__global__ void amplitudes(const float* in, float* out, bool right) {
    const int t = threadIdx.x, length = 33;
    const float* const sample = in + length * (t / 16);
    const int k = t % 16 * 2;
    const float2 pair = right ? make_float2(sample[k], sample[k + 1]) : *reinterpret_cast<const float2*>(sample + k);
    out[t] = pair.x * pair.x + pair.y * pair.y;
}

// csarofeen/pytorch#383: a turn of a loop writes what the turn before still reads.
__global__ void generated_gemm(const float* in, float* out, bool right) {
    __shared__ float a[64], b[64];
    const int t = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 4; ++k) {
        a[t] = in[64 * k + t];
        b[t] = in[64 * k + 63 - t];
        __syncthreads();
        sum += a[63 - t] * b[(t + 9) % 64];
        if (right) __syncthreads();
    }
    out[t] = sum;
}

__device__ float reduce_block(float v, float* shared, bool right) {
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(~0u, v, step);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int w = 0; w < blockDim.x / 32; ++w) v += shared[w];
    if (right) __syncthreads();
    return v;
}
// NVIDIA/Fuser#489: two reductions in a row have one scratch, and no barrier between them.
__global__ void two_reductions(const float* in, float* out, bool right) {
    __shared__ float scratch[4];
    const float sum = reduce_block(in[threadIdx.x], scratch, right);
    out[threadIdx.x] = sum + reduce_block(in[threadIdx.x] * sum, scratch, right);
}

// yelhousni/zprize-GPU-MSM-harness#1: one barrier in a loop: a thread writes the next value while others compare this.
__global__ void is_unique(const float* in, float* out, bool right) {
    __shared__ float values[64];
    const int t = threadIdx.x;
    int found = 0;
    for (int turn = 0; turn < 3; ++turn) {
        if (right) __syncthreads();
        values[t] = in[t + turn];
        __syncthreads();
        for (int k = 0; k < t; ++k) found += values[k] == values[t];
    }
    out[t] = found;
}

// mirage-project/mirage#776: a cache is read that nothing has written.
__global__ void cached(const float* in, float* out, bool right) {
    float* const cache = out + 384;
    const int t = threadIdx.x;
    if (right) cache[t] = 0;
    out[t] = in[t] * cache[t];
}

int main(int argc, char** argv) {
    return run(argc, argv,
               {{"two_stages", two_stages, 4, 64},
                {"serialize", serialize, 4, 64},
                {"select_k", select_k, 2, 64},
                {"quantize_mx4", quantize_mx4, 1, 128},
                {"gather", gather, 1, 64},
                {"amplitudes", amplitudes, 1, 64},
                {"generated_gemm", generated_gemm, 1, 64},
                {"two_reductions", two_reductions, 1, 128},
                {"is_unique", is_unique, 1, 64},
                {"cached", cached, 1, 64}});
}
