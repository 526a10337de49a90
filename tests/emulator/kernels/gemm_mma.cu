// C[M, N] = A[M, K] B[K, N], bf16 into f32: cp.async double buffering, ldmatrix, mma.sync. One CTA of four warps
// computes 64 x 64; each warp 32 x 32. Sizes are multiples of the tile. NO_WAIT and NO_BARRIER leave a step out, for
// the hazard checks to see.
typedef unsigned short bf16;
constexpr int kTile = 64, kDepth = 32, kThreads = 128;

struct __align__(16) Stage {
    bf16 a[kTile][kDepth + 8];
    bf16 b[kDepth][kTile + 8];
};

__device__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

__device__ void copy16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
}

__device__ void load_stage(Stage& s, const bf16* a, const bf16* b, int row, int column, int depth, int n, int k) {
    for (int i = threadIdx.x; i < kTile * kDepth / 8; i += kThreads)
        copy16(&s.a[i / 4][i % 4 * 8], a + (row + i / 4) * k + depth + i % 4 * 8);
    for (int i = threadIdx.x; i < kTile * kDepth / 8; i += kThreads)
        copy16(&s.b[i / 8][i % 8 * 8], b + (depth + i / 8) * n + column + i % 8 * 8);
    asm volatile("cp.async.commit_group;");
}

__device__ void multiply_stage(const Stage& s, float (&d)[2][4][4], int warp_row, int warp_column) {
    const int lane = threadIdx.x % 32;
    for (int k = 0; k < kDepth; k += 16) {
        unsigned a[2][4], b[2][4];
        for (int i = 0; i < 2; ++i)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(a[i][0]), "=r"(a[i][1]), "=r"(a[i][2]), "=r"(a[i][3])
                         : "r"(shared_address(&s.a[warp_row + 16 * i + lane % 16][k + lane / 16 * 8])));
        for (int j = 0; j < 2; ++j)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(b[j][0]), "=r"(b[j][1]), "=r"(b[j][2]), "=r"(b[j][3])
                         : "r"(shared_address(&s.b[k + lane % 16][warp_column + 16 * j + lane / 16 * 8])));
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 4; ++j)
                asm volatile(
                    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                    "{%0,%1,%2,%3};"
                    : "+f"(d[i][j][0]), "+f"(d[i][j][1]), "+f"(d[i][j][2]), "+f"(d[i][j][3])
                    : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j / 2][j % 2 * 2]),
                      "r"(b[j / 2][j % 2 * 2 + 1]));
    }
}

extern "C" __global__ void __launch_bounds__(kThreads) gemm(const bf16* a, const bf16* b, float* c, int n, int k) {
    __shared__ Stage stages[2];
    const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
    float d[2][4][4] = {};
    load_stage(stages[0], a, b, row, column, 0, n, k);
    for (int step = 0; step < k / kDepth; ++step) {
        const bool more = (step + 1) * kDepth < k;
        if (more) {
            load_stage(stages[(step + 1) % 2], a, b, row, column, (step + 1) * kDepth, n, k);
#ifndef NO_WAIT
            asm volatile("cp.async.wait_group 1;");
#endif
        } else {
            asm volatile("cp.async.wait_group 0;");
        }
        __syncthreads();
        multiply_stage(stages[step % 2], d, warp_row, warp_column);
#ifndef NO_BARRIER
        __syncthreads();
#endif
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j)
            for (int e = 0; e < 4; ++e)
                c[(row + warp_row + 16 * i + lane / 4 + e / 2 * 8) * n + column + warp_column + 8 * j + lane % 4 * 2 +
                  e % 2] = d[i][j][e];
}
