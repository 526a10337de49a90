// Mistakes that have been reported of libraries for science and engineering: docs/reference/reports.md.
#include "reports.cuh"

// dealii/dealii#8693: values come into shared memory, and are used with no barrier behind that.
__global__ void hanging_nodes(const float* in, float* out, bool right) {
    __shared__ float values[128];
    const int t = threadIdx.x;
    values[t] = in[t];
    if (right) __syncthreads();
    float sum = 0;
    for (int k = 0; k < 4; ++k) sum += values[(t * 4 + k) % 128];
    __syncthreads();
    values[t] = sum;
    out[t] = values[t];
}

// kokkos/kokkos#6630: one thread of a warp updates what others of it read.
__global__ void reduce_scan(const float* in, float* out, bool right) {
    __shared__ float shared[32];
    const int t = threadIdx.x;
    shared[t] = in[t];
    __syncwarp();
    if (t == 0) shared[1] += shared[0];
    if (right) __syncwarp();
    out[t] = shared[1];
}

// alicevision/popsift#82: atomics add to a histogram that other threads clear.
__global__ void orientation(const float* in, float* out, bool right) {
    __shared__ float histogram[36];
    const int t = threadIdx.x;
    if (t < 36) histogram[t] = 0;
    if (right) __syncthreads();
    atomicAdd(&histogram[(t * 5) % 36], in[t]);
    __syncthreads();
    if (t < 36) out[t] = histogram[t];
}

// ORNL/HeCBench#254: one thread writes two sums, and all read them.
__global__ void marching_cubes(const float* in, float* out, bool right) {
    __shared__ float vertices, triangles;
    const int t = threadIdx.x;
    if (t == 0) {
        vertices = in[0] + in[1];
        triangles = in[2];
    }
    if (right) __syncthreads();
    out[t] = vertices + triangles * t;
}

// ORNL/HeCBench#253: the next tile is loaded over the one that others still read.
__global__ void surfels(const float* in, float* out, bool right) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    float sum = 0;
    for (int turn = 0; turn < 3; ++turn) {
        tile[t] = in[64 * turn + t];
        __syncthreads();
        for (int k = 0; k < 64; ++k) sum += tile[(t + k) % 64];
        if (right) __syncthreads();
    }
    out[t] = sum;
}

// NVIDIA/cuCollections#337: a vote is taken for what orders memory; lane 0 resets a counter that the others add to.
__global__ void flush_buffer(const float* in, float* out, bool right) {
    __shared__ int counter;
    const int t = threadIdx.x;
    if (t == 0) counter = 0;
    __syncwarp();
    for (int turn = 0; turn < 2; ++turn) {
        if (__ballot_sync(~0u, in[t] > 2)) atomicAdd(&counter, 1);
        __syncwarp();
        out[32 * turn + t] = counter;
        if (right) __syncwarp();
        if (__any_sync(~0u, t == 0) && t == 0) counter = 0;
        if (right) __syncwarp();
    }
}

// NVIDIA/cuCollections#522: a barrier of the block inside the branch of those that have an element.
__global__ void find(const float* in, float* out, bool right) {
    __shared__ float found[128];
    const int t = threadIdx.x, n = 100;
    if (right) {
        if (t < n) found[t] = in[t] + 1;
        __syncthreads();
        if (t < n) out[t] = found[n - 1 - t];
    } else if (t < n) {
        found[t] = in[t] + 1;
        __syncthreads();
        out[t] = found[n - 1 - t];
    }
}

// arrayfire/arrayfire#625: the second row's reduction begins while the first is still read.
__global__ void reduce_first(const float* in, float* out, bool right) {
    __shared__ float values[128];
    const int t = threadIdx.x;
    for (int row = 0; row < 2; ++row) {
        values[t] = in[128 * row + t];
        __syncthreads();
        for (int step = 64; step; step /= 2) {
            if (t < step) values[t] += values[t + step];
            __syncthreads();
        }
        if (t == 64) out[row] = values[0];
        if (right) __syncthreads();
    }
}

// tpruvot/ccminer#75: a quarter of the lanes puts down a level, another quarter goes on from it.
__global__ void levels(const float* in, float* out, bool right) {
    __shared__ float level[32];
    const int lane = threadIdx.x;
    if (lane % 16 == 0) {
        level[lane] = in[lane];
        level[lane + 8] = in[lane + 8];
    }
    if (right) __syncwarp();
    if (lane % 8 == 0) level[lane + 4] = level[lane] + 1;
    if (right) __syncwarp();
    if (lane % 4 == 0) out[lane] = level[lane];
}

// kaldi-asr/kaldi#3211: the last steps of a reduction of groups rely on the warp's lockstep.
__global__ void group_reduce(const float* in, float* out, bool right) {
    __shared__ float parts[64];
    const int t = threadIdx.x;
    parts[t] = in[t];
    __syncthreads();
    if (t < 32) {
        for (int step = 32; step; step /= 2) {
            const float sum = t < step ? parts[t] + parts[t + step] : 0;
            if (right) __syncwarp();
            if (t < step) parts[t] = sum;
            if (right) __syncwarp();
        }
    }
    if (t == 0) out[0] = parts[0];
}

int main(int argc, char** argv) {
    return run(argc, argv,
               {{"hanging_nodes", hanging_nodes, 1, 128},
                {"reduce_scan", reduce_scan, 1, 32},
                {"orientation", orientation, 1, 128},
                {"marching_cubes", marching_cubes, 1, 128},
                {"surfels", surfels, 1, 64},
                {"flush_buffer", flush_buffer, 1, 32},
                {"find", find, 1, 128},
                {"reduce_first", reduce_first, 1, 128},
                {"levels", levels, 1, 32},
                {"group_reduce", group_reduce, 1, 64}});
}
