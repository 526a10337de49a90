// C[M, N] = A[M, K] B[N, K]^T, bf16 into f32, for sm_90a: a producer warp loads 128B-swizzled tiles with TMA into a
// ring of two stages; a warpgroup multiplies them with wgmma. TILE_N columns a CTA, 64 rows. WGMMA_SS and WGMMA_RS hold
// the instruction's text and operands (the test writes them). A_REGISTERS: A goes through ldmatrix into registers.
// NO_FENCE, NO_WAIT, EARLY_RELEASE and NO_FULL_WAIT leave a step out, for the hazard checks to see.
#include "wgmma_text.h"

typedef unsigned short bf16;
typedef unsigned long long u64;
constexpr int kRows = 64, kDepth = 64, kStages = 2, kConsumers = 128;

struct __align__(64) TensorMap {
    char bytes[128];
};

struct __align__(1024) Stage {
    bf16 a[kRows * kDepth];
    bf16 b[TILE_N * kDepth];
};

__device__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

__device__ void wait(u64* bar, unsigned parity) {
    asm volatile(
        "{\n.reg .pred p;\nRETRY:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra "
        "RETRY;\nDONE:\n}" ::"r"(shared_address(bar)),
        "r"(parity)
        : "memory");
}

__device__ void arrive(u64* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}

__device__ void load(void* to, const TensorMap& map, int x, int y, u64* bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            shared_address(to)),
        "l"(&map), "r"(x), "r"(y), "r"(shared_address(bar))
        : "memory");
}

// 128B swizzle, K-major: 1024 bytes from one group of eight rows to the next.
__device__ u64 descriptor(const void* p) {
    return 1ull << 62 | 64ull << 32 | 1ull << 16 | (shared_address(p) & 0x3FFFF) >> 4;
}

__device__ void produce(Stage* stages, u64* full, u64* empty, const TensorMap& a, const TensorMap& b, int steps) {
    for (int step = 0; step < steps; ++step) {
        const int s = step % kStages;
        wait(&empty[s], step / kStages % 2 ^ 1);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full[s])),
                     "r"((kRows + TILE_N) * kDepth * 2)
                     : "memory");
        load(stages[s].a, a, step * kDepth, blockIdx.y * kRows, &full[s]);
        load(stages[s].b, b, step * kDepth, blockIdx.x * TILE_N, &full[s]);
    }
}

__device__ void load_fragment(const Stage& stage, int k, unsigned (&a)[4]) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
    const int chunk = (2 * k + lane / 16) ^ row % 8;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(shared_address(stage.a) + row * 128 + chunk * 16));
}

__device__ void multiply(const Stage& stage, float (&d)[TILE_N / 2], bool first) {
#ifdef A_REGISTERS
    unsigned a[kDepth / 16][4];
    for (int k = 0; k < kDepth / 16; ++k) load_fragment(stage, k, a[k]);
#endif
#ifndef NO_FENCE
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
        const u64 desc_b = descriptor(stage.b) + 2 * k;
        const int accumulate = !first || k;
#ifdef A_REGISTERS
        WGMMA_RS(d, a[k], desc_b, accumulate);
#else
        const u64 desc_a = descriptor(stage.a) + 2 * k;
        WGMMA_SS(d, desc_a, desc_b, accumulate);
#endif
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(kConsumers + 32)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, float* c, int n, int k) {
    extern __shared__ Stage stages[];
    __shared__ u64 full[kStages], empty[kStages];
    const int steps = k / kDepth, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int s = 0; s < kStages; ++s) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[s])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&empty[s])), "r"(kConsumers));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= kConsumers) {
        if (lane == 0) produce(stages, full, empty, map_a, map_b, steps);
        return;
    }
    float d[TILE_N / 2];
    for (int i = 0; i < TILE_N / 2; ++i) d[i] = 0.0f;
    for (int step = 0; step < steps; ++step) {
        const int s = step % kStages;
#ifndef NO_FULL_WAIT
        wait(&full[s], step / kStages % 2);
#endif
        multiply(stages[s], d, step == 0);
#ifdef EARLY_RELEASE
        arrive(&empty[s]);
#endif
#ifndef NO_WAIT
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
#ifndef EARLY_RELEASE
        arrive(&empty[s]);
#endif
    }
    const int row = blockIdx.y * kRows + threadIdx.x / 32 * 16 + lane / 4;
    for (int i = 0; i < TILE_N / 2; ++i)
        c[(row + i / 2 % 2 * 8) * n + blockIdx.x * TILE_N + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}
