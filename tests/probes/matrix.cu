// Fragment layouts and sums of the warp's and the warpgroup's matrix instructions.
#include <cstdint>

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

extern __shared__ __align__(1024) unsigned char region[];

__device__ void fill(const unsigned char* in, uint32_t bytes) {
    for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) region[i] = in[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

#define OUT_1 "{%0}"
#define OUT_2 "{%0, %1}"
#define OUT_4 "{%0, %1, %2, %3}"
#define BINDINGS_1(X) X(r[0])
#define BINDINGS_2(X) X(r[0]), X(r[1])
#define BINDINGS_4(X) X(r[0]), X(r[1]), X(r[2]), X(r[3])
#define WRITE(x) "=r"(x)
#define READ(x) "r"(x)

// offsets: of each lane's row, bytes.
#define LDMATRIX(NAME, N, MODIFIERS)                                                                                  \
    extern "C" __global__ void NAME(const unsigned char* in, uint32_t bytes, const uint32_t* offsets, uint32_t* out) { \
        fill(in, bytes);                                                                                              \
        uint32_t r[N];                                                                                                \
        const uint32_t at = shared_address(region) + offsets[threadIdx.x];                                            \
        asm volatile("ldmatrix.sync.aligned.m8n8." MODIFIERS ".shared.b16 " OUT_##N ", [%" #N "];"                    \
                     : BINDINGS_##N(WRITE)                                                                            \
                     : "r"(at)                                                                                        \
                     : "memory");                                                                                     \
        for (int i = 0; i < N; ++i) out[threadIdx.x * N + i] = r[i];                                                  \
    }
LDMATRIX(ldmatrix_x1, 1, "x1")
LDMATRIX(ldmatrix_x2, 2, "x2")
LDMATRIX(ldmatrix_x4, 4, "x4")
LDMATRIX(ldmatrix_x1_trans, 1, "x1.trans")
LDMATRIX(ldmatrix_x2_trans, 2, "x2.trans")
LDMATRIX(ldmatrix_x4_trans, 4, "x4.trans")

#define STMATRIX(NAME, N, MODIFIERS)                                                                                  \
    extern "C" __global__ void NAME(const unsigned char* in, uint32_t bytes, const uint32_t* offsets,                 \
                                    const uint32_t* values, unsigned char* out) {                                     \
        fill(in, bytes);                                                                                              \
        uint32_t r[N];                                                                                                \
        for (int i = 0; i < N; ++i) r[i] = values[threadIdx.x * N + i];                                               \
        const uint32_t at = shared_address(region) + offsets[threadIdx.x];                                            \
        asm volatile("stmatrix.sync.aligned.m8n8." MODIFIERS ".shared.b16 [%" #N "], " OUT_##N ";" ::BINDINGS_##N(READ), \
                     "r"(at)                                                                                          \
                     : "memory");                                                                                     \
        __syncthreads();                                                                                              \
        for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = region[i];                                \
    }
STMATRIX(stmatrix_x1, 1, "x1")
STMATRIX(stmatrix_x2, 2, "x2")
STMATRIX(stmatrix_x4, 4, "x4")
STMATRIX(stmatrix_x1_trans, 1, "x1.trans")
STMATRIX(stmatrix_x2_trans, 2, "x2.trans")
STMATRIX(stmatrix_x4_trans, 4, "x4.trans")

// One tile a CTA of one warp; fragments as the registers hold them, lane-major.
#define MMA(NAME, INSTRUCTION, NA, NB, NC, TEXT, A, B, C, D)                                                              \
    extern "C" __global__ void NAME(const uint32_t* a_in, const uint32_t* b_in, const uint32_t* c_in, uint32_t* out) { \
        const uint32_t t = blockIdx.x * 32 + threadIdx.x;                                                             \
        uint32_t a[NA], b[NB], c[NC], d[NC];                                                                          \
        for (int i = 0; i < NA; ++i) a[i] = a_in[t * NA + i];                                                         \
        for (int i = 0; i < NB; ++i) b[i] = b_in[t * NB + i];                                                         \
        for (int i = 0; i < NC; ++i) c[i] = c_in[t * NC + i];                                                         \
        asm volatile("mma.sync.aligned." INSTRUCTION " " TEXT ";" : D : A, B, C);                                     \
        for (int i = 0; i < NC; ++i) out[t * NC + i] = d[i];                                                          \
    }
#define A1 "r"(a[0])
#define A2 A1, "r"(a[1])
#define A4 A2, "r"(a[2]), "r"(a[3])
#define B1 "r"(b[0])
#define B2 B1, "r"(b[1])
#define C2 "r"(c[0]), "r"(c[1])
#define C4 C2, "r"(c[2]), "r"(c[3])
#define D2 "=r"(d[0]), "=r"(d[1])
#define D4 D2, "=r"(d[2]), "=r"(d[3])
#define T424 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13}"
#define T214 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10}"
#define T422 "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9}"
#define MMA424(NAME, I) MMA(NAME, I, 4, 2, 4, T424, A4, B2, C4, D4)
#define MMA214(NAME, I) MMA(NAME, I, 2, 1, 4, T214, A2, B1, C4, D4)
#define MMA422(NAME, I) MMA(NAME, I, 4, 2, 2, T422, A4, B2, C2, D2)
MMA424(mma_m16n8k16_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
MMA424(mma_m16n8k16_f16, "m16n8k16.row.col.f32.f16.f16.f32")
MMA422(mma_m16n8k16_f16_f16, "m16n8k16.row.col.f16.f16.f16.f16")
MMA214(mma_m16n8k8_bf16, "m16n8k8.row.col.f32.bf16.bf16.f32")
MMA214(mma_m16n8k8_f16, "m16n8k8.row.col.f32.f16.f16.f32")
MMA424(mma_m16n8k8_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
MMA214(mma_m16n8k4_tf32, "m16n8k4.row.col.f32.tf32.tf32.f32")
MMA424(mma_m16n8k32_e4m3, "m16n8k32.row.col.f32.e4m3.e4m3.f32")
MMA424(mma_m16n8k32_e5m2, "m16n8k32.row.col.f32.e5m2.e4m3.f32")
MMA424(mma_m16n8k32_s8, "m16n8k32.row.col.s32.s8.s8.s32")
MMA424(mma_m16n8k32_u8_s8_sat, "m16n8k32.row.col.satfinite.s32.u8.s8.s32")
MMA214(mma_m16n8k16_s8, "m16n8k16.row.col.s32.s8.s8.s32")
#define T212 "{%0, %1}, {%2, %3}, {%4}, {%5, %6}"
MMA(mma_m16n8k8_f16_f16, "m16n8k8.row.col.f16.f16.f16.f16", 2, 1, 2, T212, A2, B1, C2, D2)
MMA214(mma_m16n8k16_e4m3, "m16n8k16.row.col.f32.e4m3.e4m3.f32")
MMA422(mma_m16n8k32_e4m3_f16, "m16n8k32.row.col.f16.e4m3.e4m3.f16")

// A sparse A: as above, with a word of metadata a lane.
#define MMA_SP(NAME, INSTRUCTION, NA, NB, NC, TEXT, A, B, C, D)                                                        \
    extern "C" __global__ void NAME(const uint32_t* a_in, const uint32_t* b_in, const uint32_t* c_in,                  \
                                    const uint32_t* metadata, uint32_t* out) {                                        \
        const uint32_t t = blockIdx.x * 32 + threadIdx.x;                                                             \
        uint32_t a[NA], b[NB], c[NC], d[NC];                                                                          \
        for (int i = 0; i < NA; ++i) a[i] = a_in[t * NA + i];                                                         \
        for (int i = 0; i < NB; ++i) b[i] = b_in[t * NB + i];                                                         \
        for (int i = 0; i < NC; ++i) c[i] = c_in[t * NC + i];                                                         \
        asm volatile("mma.sp::ordered_metadata.sync.aligned." INSTRUCTION " " TEXT ";"                                \
                     : D                                                                                              \
                     : A, B, C, "r"(metadata[t]));                                                                    \
        for (int i = 0; i < NC; ++i) out[t * NC + i] = d[i];                                                          \
    }
#define B4 B2, "r"(b[2]), "r"(b[3])
#define T444(S) "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, " #S
#define T224(S) "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%8, %9, %10, %11}, %12, " #S
#define T442(S) "{%0, %1}, {%2, %3, %4, %5}, {%6, %7, %8, %9}, {%10, %11}, %12, " #S
#define SP444(NAME, I, S) MMA_SP(NAME##_##S, I, 4, 4, 4, T444(S), A4, B4, C4, D4)
#define SP224(NAME, I, S) MMA_SP(NAME##_##S, I, 2, 2, 4, T224(S), A2, B2, C4, D4)
#define SP442(NAME, I, S) MMA_SP(NAME##_##S, I, 4, 4, 2, T442(S), A4, B4, C2, D2)
SP444(sp_m16n8k32_bf16, "m16n8k32.row.col.f32.bf16.bf16.f32", 0)
SP444(sp_m16n8k32_bf16, "m16n8k32.row.col.f32.bf16.bf16.f32", 1)
SP442(sp_m16n8k32_f16_f16, "m16n8k32.row.col.f16.f16.f16.f16", 0)
SP224(sp_m16n8k16_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", 0)
SP224(sp_m16n8k16_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", 1)
SP224(sp_m16n8k16_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", 2)
SP224(sp_m16n8k16_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", 3)
SP444(sp_m16n8k16_tf32, "m16n8k16.row.col.f32.tf32.tf32.f32", 0)
SP444(sp_m16n8k16_tf32, "m16n8k16.row.col.f32.tf32.tf32.f32", 1)
SP224(sp_m16n8k8_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32", 0)
SP224(sp_m16n8k8_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32", 3)
SP444(sp_m16n8k64_e4m3, "m16n8k64.row.col.f32.e4m3.e4m3.f32", 0)
SP444(sp_m16n8k64_s8, "m16n8k64.row.col.s32.s8.s8.s32", 0)
SP224(sp_m16n8k32_s8, "m16n8k32.row.col.s32.s8.s8.s32", 0)
SP224(sp_m16n8k32_s8, "m16n8k32.row.col.s32.s8.s8.s32", 1)

// One warpgroup, m64n8: in: shared memory, A at 0 and B at b_at; descriptors without addresses. D is read and written.
#define WGMMA_BEGIN                                                                                            \
    const uint32_t t = threadIdx.x;                                                                            \
    fill(in, bytes);                                                                                           \
    const uint64_t a = a_desc | (shared_address(region) & 0x3FFFF) >> 4;                                       \
    const uint64_t b = b_desc | (shared_address(region + b_at) & 0x3FFFF) >> 4;                                \
    uint32_t d[N];                                                                                             \
    for (int i = 0; i < N; ++i) d[i] = d_in[t * N + i];                                                        \
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#define WGMMA_END                                                                                              \
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");                                             \
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");                                             \
    for (int i = 0; i < N; ++i) out[t * N + i] = d[i];
#define PARAMETERS                                                                                             \
    const unsigned char *in, uint32_t bytes, uint32_t b_at, uint64_t a_desc, uint64_t b_desc, const uint32_t *d_in, \
        const uint32_t *fragments, uint32_t *out
#define D_8 "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
#define D_32 D_8, "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), \
    "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]),    \
    "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]),    \
    "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31])
#define L_4 "{%0, %1, %2, %3}, "
#define L_32 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "

#define SS(NAME, INSTRUCTION, TAIL)                                                                            \
    extern "C" __global__ void __launch_bounds__(128) NAME(PARAMETERS) {                                       \
        constexpr int N = 32;                                                                                  \
        WGMMA_BEGIN                                                                                            \
        asm volatile("wgmma.mma_async.sync.aligned." INSTRUCTION " " L_32 "%32, %33, " TAIL ";"                \
                     : D_32                                                                                    \
                     : "l"(a), "l"(b)                                                                          \
                     : "memory");                                                                              \
        WGMMA_END                                                                                              \
    }
#define RS(NAME, INSTRUCTION, TAIL)                                                                            \
    extern "C" __global__ void __launch_bounds__(128) NAME(PARAMETERS) {                                       \
        constexpr int N = 32;                                                                                  \
        uint32_t f[4];                                                                                         \
        for (int i = 0; i < 4; ++i) f[i] = fragments[threadIdx.x * 4 + i];                                     \
        WGMMA_BEGIN                                                                                            \
        (void)a;                                                                                               \
        asm volatile("wgmma.mma_async.sync.aligned." INSTRUCTION " " L_32 "{%32, %33, %34, %35}, %36, " TAIL ";" \
                     : D_32                                                                                    \
                     : "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3]), "l"(b)                                      \
                     : "memory");                                                                              \
        WGMMA_END                                                                                              \
    }
#define BF16 "m64n64k16.f32.bf16.bf16"
SS(wgmma_bf16_kk, BF16, "1, 1, 1, 0, 0")
SS(wgmma_bf16_mk, BF16, "1, 1, 1, 1, 0")
SS(wgmma_bf16_kn, BF16, "1, 1, 1, 0, 1")
SS(wgmma_bf16_mn, BF16, "1, 1, 1, 1, 1")
SS(wgmma_bf16_overwrite, BF16, "0, 1, 1, 0, 0")
SS(wgmma_bf16_negated, BF16, "1, -1, 1, 0, 0")
SS(wgmma_tf32, "m64n64k8.f32.tf32.tf32", "1, 1, 1")
SS(wgmma_e4m3, "m64n64k32.f32.e4m3.e4m3", "1, 1, 1")
SS(wgmma_s8, "m64n64k32.s32.s8.s8", "1")
RS(wgmma_bf16_rs_k, BF16, "1, 1, 1, 0")
RS(wgmma_bf16_rs_n, BF16, "1, 1, 1, 1")

#define SUM(NAME, INSTRUCTION, TAIL)                                                                           \
    extern "C" __global__ void __launch_bounds__(128) NAME(PARAMETERS) {                                       \
        constexpr int N = 4;                                                                                   \
        WGMMA_BEGIN                                                                                            \
        asm volatile("wgmma.mma_async.sync.aligned." INSTRUCTION " " L_4 "%4, %5, " TAIL ";"                   \
                     : D_8                                                                                     \
                     : "l"(a), "l"(b)                                                                          \
                     : "memory");                                                                              \
        WGMMA_END                                                                                              \
    }
SUM(wgmma_sum_bf16, "m64n8k16.f32.bf16.bf16", "1, 1, 1, 0, 0")
SUM(wgmma_sum_f16, "m64n8k16.f32.f16.f16", "1, 1, 1, 0, 0")
SUM(wgmma_sum_tf32, "m64n8k8.f32.tf32.tf32", "1, 1, 1")
SUM(wgmma_sum_e4m3, "m64n8k32.f32.e4m3.e4m3", "1, 1, 1")
SUM(wgmma_sum_e5m2, "m64n8k32.f32.e5m2.e4m3", "1, 1, 1")

#define D_4 "+r"(d[0]), "+r"(d[1])
#define HALF(NAME, INSTRUCTION, TAIL)                                                                          \
    extern "C" __global__ void __launch_bounds__(128) NAME(PARAMETERS) {                                       \
        constexpr int N = 2;                                                                                   \
        WGMMA_BEGIN                                                                                            \
        asm volatile("wgmma.mma_async.sync.aligned." INSTRUCTION " {%0, %1}, %2, %3, " TAIL ";"                \
                     : D_4                                                                                     \
                     : "l"(a), "l"(b)                                                                          \
                     : "memory");                                                                              \
        WGMMA_END                                                                                              \
    }
HALF(wgmma_half_f16, "m64n8k16.f16.f16.f16", "1, 1, 1, 0, 0")
HALF(wgmma_half_e4m3, "m64n8k32.f16.e4m3.e4m3", "1, 1, 1")

// A sparse A: `fragments` holds a word of metadata a thread.
#define SPARSE(NAME, INSTRUCTION, S, TAIL)                                                                     \
    extern "C" __global__ void __launch_bounds__(128) NAME##_##S(PARAMETERS) {                                 \
        constexpr int N = 4;                                                                                   \
        WGMMA_BEGIN                                                                                            \
        asm volatile("wgmma.mma_async.sp.sync.aligned." INSTRUCTION " " L_4 "%4, %5, %6, " #S ", " TAIL ";"    \
                     : D_8                                                                                     \
                     : "l"(a), "l"(b), "r"(fragments[t])                                                       \
                     : "memory");                                                                              \
        WGMMA_END                                                                                              \
    }
SPARSE(wgmma_sp_bf16, "m64n8k32.f32.bf16.bf16", 0, "1, 1, 1, 0, 0")
SPARSE(wgmma_sp_bf16, "m64n8k32.f32.bf16.bf16", 1, "1, 1, 1, 0, 0")
SPARSE(wgmma_sp_f16, "m64n8k32.f32.f16.f16", 0, "1, 1, 1, 0, 0")
SPARSE(wgmma_sp_tf32, "m64n8k16.f32.tf32.tf32", 0, "1, 1, 1")
SPARSE(wgmma_sp_tf32, "m64n8k16.f32.tf32.tf32", 1, "1, 1, 1")
SPARSE(wgmma_sp_e4m3, "m64n8k64.f32.e4m3.e4m3", 0, "1, 1, 1")
SPARSE(wgmma_sp_s8, "m64n8k64.s32.s8.s8", 0, "1")
