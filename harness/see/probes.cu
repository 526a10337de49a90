// What a GPU's constants are, measured: each line of output is a probe, its size, and what each repeat took.
//   nvcc -arch=sm_100a -o probes probes.cu && ./probes [SMALL]
// Times are cycles of an SM's clock, by clock64, of the slowest CTA; `launch` is in nanoseconds, `clock` in MHz. SMALL
// makes everything so small that an emulator runs it: its numbers mean nothing.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int kRepeats = 5, kLinks = 512, kMostStages = 8;

void need(cudaError_t code, const char* what) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "probes: %s: %s\n", what, cudaGetErrorString(code));
    std::exit(1);
}

// `chains` of ex2 or of fma beside one another, in one warp a scheduler.
template <bool Ex2, int Chains>
__global__ void links(float* out, long long* cycles) {
    float x[Chains];
    for (int k = 0; k < Chains; ++k) x[k] = threadIdx.x * 1e-3f + k;
    const long long begin = clock64();
#pragma unroll 64
    for (int n = 0; n < kLinks; ++n)
        for (int k = 0; k < Chains; ++k) {
            if constexpr (Ex2)
                asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[k]));
            else
                asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x[k]));
        }
    const long long end = clock64();
    for (int k = 1; k < Chains; ++k) x[0] += x[k];
    out[threadIdx.x] = x[0];
    if (!threadIdx.x) cycles[blockIdx.x] = end - begin;
}

__device__ void wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{ .reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again; }" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// A CTA keeps `stages` bulk copies of `bytes` under way, from a region of its own that it reads round and round.
__global__ void stream(const char* data, size_t region, unsigned bytes, int stages, int copies, long long* cycles) {
    extern __shared__ __align__(128) char ring[];
    __shared__ __align__(8) uint64_t barriers[kMostStages];
    if (threadIdx.x) return;
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(ring));
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barriers));
    for (int s = 0; s < stages; ++s)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at + 8 * s) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    const char* from = data + blockIdx.x * region;
    const int round = static_cast<int>(region / bytes);
    const long long begin = clock64();
    for (int n = 0; n < copies + stages; ++n) {
        const unsigned stage = n % stages;
        if (n >= stages) wait(at + 8 * stage, (n / stages - 1) & 1);
        if (n >= copies) continue;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at + 8 * stage), "r"(bytes)
                     : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         to + stage * bytes),
                     "l"(from + size_t(n % round) * bytes), "r"(bytes), "r"(at + 8 * stage)
                     : "memory");
    }
    cycles[blockIdx.x] = clock64() - begin;
}

__global__ void nothing() {}

__global__ void spin(long long cycles, unsigned long long* nanoseconds) {
    unsigned long long from, to;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
    const long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(to));
    if (!threadIdx.x && !blockIdx.x) *nanoseconds = to - from;
}

struct Probes {
    int sms;
    bool small;
    char* data;
    long long* cycles;

    template <class F>
    void tell(const char* name, double size, int ctas, F launch) {
        std::printf("%s,%g", name, size);
        for (int r = 0; r < kRepeats; ++r) {
            launch();
            need(cudaGetLastError(), name);
            std::vector<long long> took(ctas);
            need(cudaMemcpy(took.data(), cycles, sizeof(long long) * ctas, cudaMemcpyDeviceToHost), name);
            std::printf(",%lld", *std::max_element(took.begin(), took.end()));
        }
        std::printf("\n");
    }

    // `size` is what one CTA reads, in bytes.
    void read(const char* name, int ctas, size_t region, unsigned bytes, int stages, int copies) {
        if (small) copies = std::min(copies, 8), region = std::min<size_t>(region, 4 * bytes);
        tell(name, double(copies) * bytes, ctas,
             [&] { stream<<<ctas, 32, stages * bytes>>>(data, region, bytes, stages, copies, cycles); });
    }
};

int main(int argc, char**) {
    int sms = 0;
    need(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
    const bool small = argc > 1;
    if (small) sms = 2;
    Probes p{sms, small, nullptr, nullptr};
    const size_t own = small ? 1 << 17 : 16 << 20;
    need(cudaMalloc(&p.data, own * sms), "cudaMalloc");
    need(cudaMemset(p.data, 0, own * sms), "cudaMemset");
    need(cudaMalloc(&p.cycles, sizeof(long long) * sms), "cudaMalloc");
    need(cudaFuncSetAttribute(stream, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10), "cudaFuncSetAttribute");
    float* out = reinterpret_cast<float*>(p.data);

    p.tell("ex2_chain", kLinks, 1, [&] { links<true, 1><<<1, 32>>>(out, p.cycles); });
    p.tell("ex2_apart", 8 * kLinks, 1, [&] { links<true, 8><<<1, 32>>>(out, p.cycles); });
    p.tell("fma_chain", kLinks, 1, [&] { links<false, 1><<<1, 32>>>(out, p.cycles); });
    p.read("port", 1, 1 << 20, 16384, 8, 2048);
    p.read("l2", sms, 128 << 10, 16384, 8, 2048);
    p.read("hbm", sms, own, 16384, 8, 1024);
    p.read("l2_latency", 1, 16384, 512, 1, 1024);
    p.read("hbm_latency", 1, own, 512, 1, 1024);
    p.read("hbm_queue", sms, own, 8192, 4, 1024);

    std::printf("clock,0");
    unsigned long long* nanoseconds = reinterpret_cast<unsigned long long*>(p.cycles);
    const long long spun = small ? 1000 : 100000000;
    for (int r = 0; r < kRepeats; ++r) {
        unsigned long long took = 0;
        spin<<<1, 32>>>(spun, nanoseconds);
        need(cudaMemcpy(&took, nanoseconds, sizeof took, cudaMemcpyDeviceToHost), "clock");
        std::printf(",%g", took ? 1e3 * spun / took : 0.0);
    }
    std::printf("\n");

    cudaEvent_t begin, end;
    need(cudaEventCreate(&begin), "cudaEventCreate");
    need(cudaEventCreate(&end), "cudaEventCreate");
    const int launches = small ? 2 : 2000;
    std::printf("launch,%d", launches);
    for (int r = 0; r < kRepeats; ++r) {
        float ms = 0;
        need(cudaEventRecord(begin), "cudaEventRecord");
        for (int n = 0; n < launches; ++n) nothing<<<1, 32>>>();
        need(cudaEventRecord(end), "cudaEventRecord");
        need(cudaEventSynchronize(end), "cudaEventSynchronize");
        need(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
        std::printf(",%g", 1e6 * ms);
    }
    std::printf("\n");
    return 0;
}
