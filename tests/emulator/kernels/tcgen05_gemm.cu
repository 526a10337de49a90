// A GEMM of one tile and four MMAs of K, to be compiled for every kind: A and B are bytes, 128 a row, copied to shared
// memory in the 128-byte swizzle. KIND names the MMA, ROWS and COLS its M and N; WS and PAIR choose its variants; SCALED
// copies one scale a row and MMA through tcgen05.cp. The words of tensor memory are the result.
#include <cstdint>

#ifndef WS
#define WS 0
#endif
#ifndef PAIR
#define PAIR 0
#endif
#ifndef SCALED
#define SCALED 0
#endif
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#if PAIR
#define GROUP "cta_group::2"
#else
#define GROUP "cta_group::1"
#endif
#if WS
#define MMA "tcgen05.mma.ws." GROUP ".kind::" TEXT(KIND)
#elif SCALED
#define MMA "tcgen05.mma." GROUP ".kind::" TEXT(KIND) ".block_scale.scale_vec::1X"
#else
#define MMA "tcgen05.mma." GROUP ".kind::" TEXT(KIND)
#endif

constexpr int kCtas = PAIR ? 2 : 1, kRows = ROWS / kCtas, kCols = COLS / kCtas;  // of one CTA's operands
constexpr uint32_t kPeerMask = 0xFEFFFFFF;  // clears the odd CTA's bit of a shared::cluster address

extern __shared__ __align__(1024) uint8_t smem[];

__device__ uint32_t address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ uint64_t swizzled_descriptor(uint32_t at) {
    return static_cast<uint64_t>((at & 0x3FFFF) >> 4) | 64ull << 32 | 1ull << 46 | 2ull << 61;
}

__device__ uint64_t plain_descriptor(uint32_t at) {
    return static_cast<uint64_t>((at & 0x3FFFF) >> 4) | 8ull << 16 | 8ull << 32 | 1ull << 46;
}

__device__ void wait(uint32_t bar, uint32_t parity) {
    uint32_t done = 0;
    while (!done)
        asm volatile(
            "{\n\t.reg .pred p;\n\t"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
            "selp.u32 %0, 1, 0, p;\n\t}"
            : "=r"(done)
            : "r"(bar), "r"(parity)
            : "memory");
}

__device__ void fill(uint8_t* to, const uint8_t* from, int rows) {
    for (int i = threadIdx.x; i < rows * 8; i += blockDim.x) {
        const int r = i / 8, c = i % 8;
        *reinterpret_cast<uint4*>(to + r * 128 + (c ^ r % 8) * 16) = *reinterpret_cast<const uint4*>(from + i * 16);
    }
}

__device__ void mma(uint32_t d, uint64_t a, uint64_t b, uint32_t idesc, uint32_t accumulate, uint32_t sfa, uint32_t sfb) {
#if SCALED
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %4, 0;\n\t" MMA " [%0], %1, %2, %3, [%5], [%6], p;\n\t}" ::"r"(d),
                 "l"(a), "l"(b), "r"(idesc), "r"(accumulate), "r"(sfa), "r"(sfb)
                 : "memory");
#else
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %4, 0;\n\t" MMA " [%0], %1, %2, %3, p;\n\t}" ::"r"(d), "l"(a),
                 "l"(b), "r"(idesc), "r"(accumulate)
                 : "memory");
#endif
}

// a: [ROWS][128], b: [COLS][128], scales: [2][32][16] as tcgen05.cp.32x128b takes them, out: [ctas][128][COLS] words.
extern "C" __global__ void __launch_bounds__(128) gemm(const uint8_t* a, const uint8_t* b, const uint8_t* scales,
                                                       uint32_t* out, uint32_t idesc) {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    uint8_t* const sa = smem;
    uint8_t* const sb = sa + kRows * 128;
    uint8_t* const ss = sb + kCols * 128;
    uint64_t* const bars = reinterpret_cast<uint64_t*>(ss + 1024);
    uint32_t* const where = reinterpret_cast<uint32_t*>(bars + 2);
    const uint32_t done = address(bars), ready = address(bars + 1);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    fill(sa, a + rank * kRows * 128, kRows);
    fill(sb, b + rank * kCols * 128, kCols);
    if (SCALED && threadIdx.x < 64)
        reinterpret_cast<uint4*>(ss)[threadIdx.x] = reinterpret_cast<const uint4*>(scales)[threadIdx.x];
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(done) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(ready) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (warp == 0)
        asm volatile("tcgen05.alloc." GROUP ".sync.aligned.shared::cta.b32 [%0], 512;" ::"r"(address(where)) : "memory");
    __syncthreads();
    const uint32_t taddr = *where, sfa = taddr + 256, sfb = taddr + 260;

    if (PAIR && rank == 1 && threadIdx.x == 0)
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(ready & kPeerMask) : "memory");
    if (rank == 0 && threadIdx.x == 0) {
        if (PAIR) wait(ready, 0);
        asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
        if (SCALED) {
            for (int k = 0; k < 2; ++k)
                asm volatile("tcgen05.cp." GROUP ".32x128b.warpx4 [%0], %1;" ::"r"(k ? sfb : sfa),
                             "l"(plain_descriptor(address(ss) + 512 * k))
                             : "memory");
        }
        for (int k = 0; k < 4; ++k)
            mma(taddr, swizzled_descriptor(address(sa) + 32 * k), swizzled_descriptor(address(sb) + 32 * k),
                SCALED ? idesc | k << 29 | k << 4 : idesc, k != 0, sfa, sfb);
#if PAIR
        asm volatile("tcgen05.commit." GROUP ".mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
                         done),
                     "h"(static_cast<uint16_t>(3))
                     : "memory");
#else
        asm volatile("tcgen05.commit." GROUP ".mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(done) : "memory");
#endif
    }
    wait(done, 0);
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");

    constexpr int kWords = WS && ROWS < 128 ? COLS * ROWS / 128 : PAIR && ROWS == 128 ? COLS / 2 : COLS;
    for (int c = 0; c < kWords; c += 8) {
        uint32_t v[8];
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7])
                     : "r"(taddr + (warp << 21) + c));
        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
        for (int j = 0; j < 8; ++j) out[((rank * 128) + warp * 32 + lane) * COLS + c + j] = v[j];
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    if (warp == 0) {
        asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
        asm volatile("tcgen05.relinquish_alloc_permit." GROUP ".sync.aligned;");
        asm volatile("tcgen05.dealloc." GROUP ".sync.aligned.b32 %0, 512;" ::"r"(taddr));
    }
}
