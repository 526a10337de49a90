// Copies into shared memory: bulk copies in a ring, and boxes of a tensor map.
#pragma once

#include <cuda.h>

#include "tell.cuh"

constexpr int kMostStages = 8;

// A CTA keeps `stages` bulk copies of `bytes` under way, from a region of its own that it reads round and round. Places
// are counted, not divided: three divisions a copy take one thread longer than the port takes for 16 KB.
__global__ void stream(const char* data, size_t region, unsigned bytes, int stages, int copies, long long* cycles) {
    extern __shared__ __align__(128) char ring[];
    __shared__ __align__(8) uint64_t barriers[kMostStages];
    if (threadIdx.x) return;
    const unsigned to = shared_address(ring), at = shared_address(barriers);
    for (int s = 0; s < stages; ++s) mbarrier_init(at + 8 * s);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    const char *from = data + blockIdx.x * region, *next = from, *end = from + region / bytes * bytes;
    unsigned stage = 0, parity = 1;
    const long long begin = clock64();
    for (int n = 0; n < copies + stages; ++n) {
        if (n >= stages) wait(at + 8 * stage, parity);
        if (n < copies) {
            mbarrier_expect(at + 8 * stage, bytes);
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                    to + stage * bytes),
                "l"(next), "r"(bytes), "r"(at + 8 * stage)
                : "memory");
            next = next + bytes == end ? from : next + bytes;
        }
        if (++stage == unsigned(stages)) stage = 0, parity ^= 1;
    }
    cycles[blockIdx.x] = clock64() - begin;
}

// One CTA reads the same boxes again and again, `together` of them at one mbarrier, four of those under way.
__global__ void boxes(const __grid_constant__ CUtensorMap map, unsigned bytes, int together, int rounds,
                      long long* cycles) {
    extern __shared__ __align__(128) char ring[];
    __shared__ __align__(8) uint64_t barriers[4];
    if (threadIdx.x) return;
    const unsigned to = (shared_address(ring) + 127) & ~127u, at = shared_address(barriers);
    for (int s = 0; s < 4; ++s) mbarrier_init(at + 8 * s);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    const unsigned room = (bytes + 127) & ~127u;
    const long long begin = clock64();
    for (int n = 0; n < rounds + 4; ++n) {
        const unsigned stage = n % 4;
        if (n >= 4) wait(at + 8 * stage, (n / 4 - 1) & 1);
        if (n >= rounds) continue;
        mbarrier_expect(at + 8 * stage, bytes * together);
        for (int k = 0; k < together; ++k)
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
                "%3}], "
                "[%4];" ::"r"(to + (stage * together + k) * room),
                "l"(&map), "r"(0), "r"(0), "r"(at + 8 * stage)
                : "memory");
    }
    cycles[blockIdx.x] = clock64() - begin;
}

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                            const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                            CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// Boxes of `rows` rows of `row_bytes`, which lie 256 bytes apart.
inline void box_probe(Probes& p, const char* name, double size, unsigned row_bytes, unsigned rows, int together,
                      int rounds) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult answer;
#if CUDART_VERSION >= 13000
    need(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &answer), name);
#else
    need(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &answer), name);
#endif
    const cuuint64_t sizes[2] = {row_bytes / 2, 256}, strides[1] = {256};
    const cuuint32_t box[2] = {row_bytes / 2, rows}, steps[2] = {1, 1};
    CUtensorMap map;
    const CUresult code = reinterpret_cast<Encode>(found)(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, p.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (code != CUDA_SUCCESS) {
        std::fprintf(stderr, "probes: %s: the tensor map is refused (%d)\n", name, int(code));
        std::exit(1);
    }
    if (p.small) rounds = 8;
    const unsigned bytes = row_bytes * rows, room = (bytes + 127) & ~127u;
    need(cudaFuncSetAttribute(boxes, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10), name);
    p.tell(name, size * together * rounds, 1,
           [&](int) { boxes<<<1, 32, 4 * together * room + 128>>>(map, bytes, together, rounds, p.cycles); });
}

// `size` is what one CTA reads, in bytes; each repeat begins `shift` bytes further on.
inline void read(Probes& p, const char* name, int ctas, size_t region, unsigned bytes, int stages, int copies,
                 size_t shift = 0) {
    if (p.small) copies = std::min(copies, 8), region = std::min<size_t>(region, 4 * bytes), shift = 0;
    p.tell(name, double(copies) * bytes, ctas, [&](int r) {
        stream<<<ctas, 32, stages * bytes>>>(p.data + r * shift, region, bytes, stages, copies, p.cycles);
    });
}

inline void copies(Probes& p) {
    need(cudaFuncSetAttribute(stream, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10), "cudaFuncSetAttribute");
    const size_t own = p.bytes / p.sms;
    read(p, "port", 1, 1 << 20, 16384, 8, 2048);
    read(p, "l2", p.sms, 128 << 10, 16384, 8, 2048);
    read(p, "hbm", p.sms, own, 16384, 8, 1024);
    read(p, "l2_latency", 1, 16384, 512, 1, 1024);
    read(p, "hbm_latency", 1, own, 512, 1, 1024, 1024 * 512);  // what no repeat has brought into L2
    read(p, "hbm_queue", p.sms, own, 4096, 2, 1024);           // less than memory gives while one of them waits
    box_probe(p, "rows_16", 256, 16, 256, 4, 256);
    box_probe(p, "rows_64", 256, 64, 256, 1, 1024);
    box_probe(p, "boxes", 1, 32, 1, 32, 256);
}
