// Products of tiles in shared memory by the tensor core, as fast as they go and one after the other; on an sm_100 loads
// from tensor memory as well. Operands are 128-byte swizzled bf16, K major, of random numbers: zeros take less power.
#pragma once

#include "tell.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FMHA_WGMMA
#elif defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)
#define FMHA_TCGEN05
#endif

constexpr int kTileK = 64, kSteps = 4;  // elements of a row of a tile, and products that it is of
constexpr int kMostN = 256;
constexpr unsigned kRowBytes = 2 * kTileK;
constexpr size_t kOperands = (128 + kMostN) * kRowBytes;  // of a CTA: A has 64 or 128 rows, or 64 twice

__device__ inline unsigned operands() {
    extern __shared__ __align__(1024) char tiles[];
    const unsigned from = (shared_address(tiles) + 1023) & ~1023u;
    for (unsigned at = threadIdx.x; at < kOperands / 4; at += blockDim.x) {
        unsigned h = at * 2654435761u + blockIdx.x;
        h = (h ^ h >> 15) * 2246822519u;
        h ^= h >> 13;
        const unsigned both = (h & 0x80ff80ffu) + 0x3f003f00u;  // from 0.5 to 2, of either sign
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(from + 4 * at), "r"(both) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    return from;
}

#ifdef FMHA_WGMMA

__device__ inline uint64_t tile(unsigned address) {
    return uint64_t(address >> 4) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

#define FMHA_8(t) #t "0, " #t "1, " #t "2, " #t "3, " #t "4, " #t "5, " #t "6, " #t "7"
#define FMHA_32(a, b, c, d) FMHA_8(a) ", " FMHA_8(b) ", " FMHA_8(c) ", " FMHA_8(d)
#define FMHA_64 FMHA_32(da, db, dc, dd)
#define FMHA_128 FMHA_64 ", " FMHA_32(de, df, dg, dh)
#define FMHA_256 FMHA_128 ", " FMHA_32(di, dj, dk, dl) ", " FMHA_32(dm, dn, do, dp)
// `more`, a predicate of the kernel's own: whether it adds to what is there.
#define FMHA_PRODUCT(N)                                                                    \
    if constexpr (Registers)                                                               \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" FMHA_##N \
                     "}, {%1, %1, %1, %1}, %0, more, 1, 1, 0;" ::"l"(b),                   \
                     "r"(x)                                                                \
                     : "memory");                                                          \
    else                                                                                   \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" FMHA_##N \
                     "}, %0, %1, more, 1, 1, 0, 0;" ::"l"(a),                              \
                     "l"(b)                                                                \
                     : "memory")

// The accumulators are registers of the kernel's own, da0 and on.
template <int N, bool Registers>
__device__ inline void product(uint64_t a, uint64_t b, unsigned x) {
    if constexpr (N == 64)
        FMHA_PRODUCT(64);
    else if constexpr (N == 128)
        FMHA_PRODUCT(128);
    else
        FMHA_PRODUCT(256);
}

// Their sum, so that ptxas leaves no product out.
#define FMHA_ADD(t)                                                                                     \
    "add.f32 %0, %0, " #t "0;\nadd.f32 %0, %0, " #t "1;\nadd.f32 %0, %0, " #t "2;\nadd.f32 %0, %0, " #t \
    "3;\nadd.f32 %0, %0, " #t "4;\nadd.f32 %0, %0, " #t "5;\nadd.f32 %0, %0, " #t "6;\nadd.f32 %0, %0, " #t "7;\n"
template <int N>
__device__ inline float sum() {
    float of = 0;
    asm volatile(FMHA_ADD(da) FMHA_ADD(db) FMHA_ADD(dc) FMHA_ADD(dd) : "+f"(of));
    if constexpr (N > 64) asm volatile(FMHA_ADD(de) FMHA_ADD(df) FMHA_ADD(dg) FMHA_ADD(dh) : "+f"(of));
    if constexpr (N > 128)
        asm volatile(FMHA_ADD(di) FMHA_ADD(dj) FMHA_ADD(dk) FMHA_ADD(dl) FMHA_ADD(dm) FMHA_ADD(dn) FMHA_ADD(do)
                         FMHA_ADD(dp)
                     : "+f"(of));
    return of;
}

template <int N, bool Registers, bool Chain>
__device__ inline long long multiply(unsigned from, int tiles) {
    asm volatile(
        ".reg .f32 da<8>, db<8>, dc<8>, dd<8>, de<8>, df<8>, dg<8>, dh<8>, di<8>, dj<8>, dk<8>, dl<8>, dm<8>, dn<8>, "
        "do<8>, dp<8>;\n.reg .pred more;");
    const uint64_t a = tile(from + (threadIdx.x >> 7) * 64 * kRowBytes), b = tile(from + 128 * kRowBytes);
    const unsigned x = 0x3f803f80u + threadIdx.x;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    const long long begin = clock64();
    for (int n = 0; n < tiles; ++n) {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
            asm volatile("setp.ne.s32 more, %0, 0;" ::"r"(n + k));
            product<N, Registers>(a + 2 * k, b + 2 * k, x);
            if constexpr (Chain)
                asm volatile(
                    "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nwgmma.fence.sync.aligned;" ::
                        : "memory");
        }
        if constexpr (!Chain)
            asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    const long long took = clock64() - begin;
    return sum<N>() == 0x1p-100f ? 0 : took;
}

#elif defined(FMHA_TCGEN05)

__device__ inline uint64_t tile(unsigned address) {
    return uint64_t(address >> 4 & 0x3fff) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 46 |
           uint64_t(2) << 61;
}

// All columns of tensor memory, until the block's end.
struct Columns {
    unsigned first;
    __device__ Columns() {
        __shared__ unsigned place;
        if (threadIdx.x < 32)
            asm volatile(
                "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 512;" ::"r"(shared_address(&place))
                : "memory");
        asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
        __syncthreads();
        asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
        first = place;
    }
    __device__ ~Columns() {
        asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
        __syncthreads();
        asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
        if (threadIdx.x < 32)
            asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 512;" ::"r"(first) : "memory");
    }
};

// M is 128. `Registers`: A in tensor memory, in columns 256 and on, whatever they hold.
template <int N, bool Registers, bool Chain>
__device__ inline long long multiply(unsigned from, int tiles) {
    __shared__ __align__(8) uint64_t barriers[2];
    Columns columns;
    const unsigned at = shared_address(barriers);
    if (threadIdx.x == 0) {
        mbarrier_init(at), mbarrier_init(at + 8);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (Registers && threadIdx.x < 128) {
        const unsigned to = columns.first + 256 + (threadIdx.x / 32 << 21);
        for (int c = 0; c < 32; ++c)
            asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(to + c),
                         "r"(0x3f803f80u + threadIdx.x)
                         : "memory");
        asm volatile("tcgen05.wait::st.sync.aligned;\ntcgen05.fence::before_thread_sync;" ::: "memory");
    }
    __syncthreads();
    long long took = 0;
    if (threadIdx.x == 0) {
        asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
        const uint64_t a = tile(from), b = tile(from + 128 * kRowBytes);
        const unsigned kind = 1u << 4 | 1u << 7 | 1u << 10 | (N >> 3) << 17 | (128u >> 4) << 24;
        int arrivals = 0;
        const auto commit = [&] {
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                             at + 8 * (arrivals & 1))
                         : "memory");
            ++arrivals;
        };
        asm volatile(".reg .pred more;");
        const auto await = [&](int which) { wait(at + 8 * (which & 1), which >> 1 & 1); };
        const long long begin = clock64();
        for (int n = 0; n < tiles; ++n) {
#pragma unroll
            for (int k = 0; k < kSteps; ++k) {
                asm volatile("setp.ne.s32 more, %0, 0;" ::"r"(n + k));
                if constexpr (Registers)
                    asm volatile("tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, more;" ::"r"(columns.first),
                                 "r"(columns.first + 256 + 8 * k), "l"(b + 2 * k), "r"(kind)
                                 : "memory");
                else
                    asm volatile("tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, more;" ::"r"(columns.first),
                                 "l"(a + 2 * k), "l"(b + 2 * k), "r"(kind)
                                 : "memory");
                if constexpr (Chain) commit(), await(arrivals - 1);
            }
            if constexpr (!Chain) {
                commit();
                if (n) await(arrivals - 2);
            }
        }
        if constexpr (!Chain) await(arrivals - 1);
        took = clock64() - begin;
    }
    __syncthreads();
    return took;
}

#endif

template <int N, bool Registers, bool Chain, int Threads>
__global__ void __launch_bounds__(Threads) products(int tiles, long long* cycles, unsigned long long* nanoseconds) {
#if defined(FMHA_WGMMA) || defined(FMHA_TCGEN05)
    const unsigned from = operands();
    unsigned long long began, ended;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began)::"memory");
    const long long took = multiply<N, Registers, Chain>(from, tiles);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ended)::"memory");
    if (threadIdx.x) return;
    cycles[blockIdx.x] = took;
    nanoseconds[blockIdx.x] = ended - began;
#endif
}

// A warp's loads of 32 columns, one after the other or eight under way.
template <bool Chain>
__global__ void columns(int loads, long long* cycles) {
#ifdef FMHA_TCGEN05
    Columns all;
    const unsigned from = all.first;
    for (int c = 0; c < 256; ++c)
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(from + c), "r"(0) : "memory");
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    asm volatile(".reg .b32 da<8>, db<8>, dc<8>, dd<8>;");
#define FMHA_8(t) #t "0, " #t "1, " #t "2, " #t "3, " #t "4, " #t "5, " #t "6, " #t "7"
    const long long begin = clock64();
    for (int n = 0; n < loads; ++n) {
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {" FMHA_8(da) ", " FMHA_8(db) ", " FMHA_8(dc) ", " FMHA_8(
                         dd) "}, [%0];" ::"r"(from + 32 * (n % 8))
                     : "memory");
        if (Chain || n % 8 == 7) asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    }
    const long long end = clock64();
    if (!threadIdx.x) cycles[blockIdx.x] = end - begin;
#endif
}

constexpr size_t kProductShared = kOperands + 1024;

template <int N, bool Registers, bool Chain, int Threads = 128>
void product_probe(Probes& p, const char* name, int tiles) {
    if (p.small) tiles = 2;
    const auto kernel = products<N, Registers, Chain, Threads>;
    need(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(kProductShared)), name);
    unsigned long long* nanoseconds = reinterpret_cast<unsigned long long*>(p.data);
    p.tell(name, double(tiles) * kSteps, 1,
           [&](int) { kernel<<<1, Threads, kProductShared>>>(tiles, p.cycles, nanoseconds); });
}

// Rates and latencies by size; of M = 64 on Hopper and 128 on Blackwell.
inline void products_by_size(Probes& p) {
    product_probe<64, false, false>(p, "product_64", 2048);
    product_probe<128, false, false>(p, "product_128", 2048);
    product_probe<256, false, false>(p, "product_256", 2048);
    product_probe<128, true, false>(p, "product_registers", 2048);
    product_probe<128, false, true>(p, "product_chain", 512);
    product_probe<128, true, true>(p, "product_chain_registers", 512);
    if (!p.tensor_memory) return;
    const int loads = p.small ? 16 : 4096;
    p.tell("columns_chain", loads, 1, [&](int) { columns<true><<<1, 32>>>(loads, p.cycles); });
    p.tell("columns", loads, 1, [&](int) { columns<false><<<1, 32>>>(loads, p.cycles); });
}
