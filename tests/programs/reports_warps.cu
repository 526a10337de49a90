// Mistakes within warps, and of what is drawn, that have been reported: docs/reference/reports.md.
#include "reports.cuh"

// numba/numba#6127: a reduction takes writes of a warp's threads to be seen by the others.
__global__ void numba_reduce(const float* in, float* out, bool right) {
    __shared__ float shared[32];
    const int lane = threadIdx.x;
    shared[lane] = in[lane];
    if (right) __syncwarp();
    for (int width = 16; width; width /= 2) {
        if (lane < width) shared[lane] += shared[lane + width];
        if (right) __syncwarp();
    }
    if (lane == 0) out[0] = shared[0];
}

// CanReader/FastNN#8: volatile stands for the order of a warp's lanes.
__global__ void kernel_sum(const float* in, float* out, bool right) {
    __shared__ float data[64];
    const int t = threadIdx.x;
    data[t] = in[t];
    __syncthreads();
    if (t >= 32) return;
    volatile float* const shared = data;
    for (int step = 32; step; step /= 2) {
        const float v = shared[t + step];
        if (right) __syncwarp();
        shared[t] = shared[t] + v;
        if (right) __syncwarp();
    }
    if (t == 0) out[0] = data[0];
}

// gunrock/gunrock#324: some lanes shuffle under a mask of theirs, and all of them next with one that they are not at.
__global__ void scan(const float* in, float* out, bool right) {
    const int lane = threadIdx.x;
    float v = in[lane];
    if (lane % 16 == 0) v += __shfl_xor_sync(right ? 0x00010001u : 0xffffffffu, v, 16);
    out[lane] = __shfl_up_sync(~0u, v, 8);
}

// NVIDIA/cccl#854: tiles of a warp shuffle under the mask of the whole, in a loop that each leaves in its own turn.
__global__ void logical_warps(const float* in, float* out, bool right) {
    const int lane = threadIdx.x, tile = lane / 8;
    const unsigned mask = right ? 0xffu << 8 * tile : ~0u;
    float sum = 0;
    for (int turn = 0; turn <= tile; ++turn) sum += __shfl_sync(mask, in[lane], 0, 8);
    out[lane] = sum;
}

// brucefan1983/CUDA-Programming#51: lane 0 votes, and the mask does not name it.
__global__ void ballot(const float* in, float* out, bool right) {
    const int lane = threadIdx.x;
    const unsigned others = __ballot_sync(~0u, lane > 0);
    unsigned seen = 0;
    if (!right || lane > 0) seen = __all_sync(others, in[lane] < 9);
    out[lane] = seen;
}

// moderngpu/moderngpu#36: the lanes that happen to be active are taken for those that shuffle.
__global__ void active(const float* in, float* out, bool right) {
    const int lane = threadIdx.x;
    float v = in[lane];
    if (lane < 20) {
        const unsigned mask = right ? 0xfffffu : __activemask();
        const float next = __shfl_down_sync(mask, v, right && lane == 19 ? 0 : 1);
        v += next;
    }
    out[lane] = v;
}

// humansensinglab/taming-3dgs#22: a key of no tile is taken for the number of one.
__global__ void tile_ranges(const float* in, float* out, bool right) {
    const int t = threadIdx.x;
    const unsigned tile = t < 60 ? t / 4 : ~0u, before = t && t - 1 < 60 ? (t - 1) / 4 : ~0u;
    if (tile == before) return;
    if (!right || before < 16) out[2 * static_cast<size_t>(before) + 1] = t;
    if (!right || tile < 16) out[2 * static_cast<size_t>(tile)] = t;
}

// graphdeco-inria/gaussian-splatting#781: fewer keys are written than are sorted.
__global__ void duplicate_keys(const float* in, float* out, bool right) {
    float* const keys = out + 384;
    const int t = threadIdx.x, written = right ? 64 : 60;
    if (t < written) keys[t] = in[t];
    __syncthreads();
    out[t] = fminf(keys[t], keys[t ^ 1]);
}

// apache/tvm#8540: two halves are read at once from an odd place.
__global__ void strided_slice(const float* in, float* out, bool right) {
    const unsigned short* const halves = reinterpret_cast<const unsigned short*>(in) + 3 * threadIdx.x + 1;
    out[threadIdx.x] = right ? halves[0] + halves[1] : *reinterpret_cast<const unsigned*>(halves);
}

// AdaptiveCpp/AdaptiveCpp#838: lanes that are not there are reduced over.
__global__ void over_group(const float* in, float* out, bool right) {
    const int t = threadIdx.x, n = 24;
    if (!right && t >= n) return;
    float v = t < n ? in[t] : 0;
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(~0u, v, step);
    out[t] = v;
}

int main(int argc, char** argv) {
    return run(argc, argv,
               {{"numba_reduce", numba_reduce, 1, 32},
                {"kernel_sum", kernel_sum, 1, 64},
                {"scan", scan, 1, 32},
                {"logical_warps", logical_warps, 1, 32},
                {"ballot", ballot, 1, 32},
                {"active", active, 1, 32},
                {"tile_ranges", tile_ranges, 1, 64},
                {"duplicate_keys", duplicate_keys, 1, 64},
                {"strided_slice", strided_slice, 1, 64},
                {"over_group", over_group, 1, 32}});
}
