// Chains of one instruction: each waits for the one before it. Beside one another they give how often it can be issued.
#pragma once

#include "tell.cuh"

constexpr int kLinks = 512;

struct Fma {
    static __device__ void link(float& x) { asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x)); }
};
struct Ex2 {
    static __device__ void link(float& x) { asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x)); }
};
struct Pack {
    static __device__ void link(float& x) {
        asm volatile("{ .reg .b32 both; cvt.rn.bf16x2.f32 both, %0, %0; mov.b32 %0, both; }" : "+f"(x));
    }
};
struct FromInteger {
    static __device__ void link(float& x) {
        asm volatile("{ .reg .b32 bits; mov.b32 bits, %0; cvt.rn.f32.s32 %0, bits; }" : "+f"(x));
    }
};
struct Convert {
    static __device__ void link(float& x) {
        asm volatile("{ .reg .b32 bits; cvt.rni.s32.f32 bits, %0; mov.b32 %0, bits; }" : "+f"(x));
    }
};
struct Shuffle {
    static __device__ void link(float& x) { asm volatile("shfl.sync.bfly.b32 %0, %0, 1, 31, 0xffffffff;" : "+f"(x)); }
};
struct Alu {  // by turns, so that no two of them are one instruction
    static __device__ void link(float& x) {
        asm volatile("{ min.f32 %0, %0, 0f41000000; max.f32 %0, %0, 0fC1000000; }" : "+f"(x));
    }
};

template <class Link, int Chains>
__global__ void links(float* out, long long* cycles) {
    float x[Chains];
    for (int k = 0; k < Chains; ++k) x[k] = threadIdx.x * 1e-3f + k;
    const long long begin = clock64();
#pragma unroll 64
    for (int n = 0; n < kLinks; ++n)
        for (int k = 0; k < Chains; ++k) Link::link(x[k]);
    const long long end = clock64();
    for (int k = 1; k < Chains; ++k) x[0] += x[k];
    out[threadIdx.x] = x[0];
    if (!threadIdx.x) cycles[blockIdx.x] = end - begin;
}

// Loads of words that hold their own address.
__global__ void chase(unsigned long long* word, bool shared, long long* cycles) {
    __shared__ unsigned own;
    own = shared_address(&own);
    *word = reinterpret_cast<unsigned long long>(word);
    __threadfence();
    unsigned near = shared_address(&own);
    unsigned long long far = reinterpret_cast<unsigned long long>(word);
    const long long begin = clock64();
    if (shared) {
#pragma unroll 64
        for (int n = 0; n < kLinks; ++n) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(near)::"memory");
    } else {
#pragma unroll 64
        for (int n = 0; n < kLinks; ++n) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(far)::"memory");
    }
    const long long end = clock64();
    if (near != shared_address(&own) || far != reinterpret_cast<unsigned long long>(word)) __trap();
    *cycles = end - begin;
}

// Words that each hold the address of the next, which is `apart` bytes on.
__global__ void thread_words(char* words, size_t apart) {
    for (int n = threadIdx.x; n <= kLinks; n += blockDim.x)
        *reinterpret_cast<char**>(words + n * apart) = words + (n + 1) * apart;
}

// Loads of such words, none of which L2 has.
__global__ void chase_far(char* words, size_t apart, long long* cycles) {
    unsigned long long at = reinterpret_cast<unsigned long long>(words);
    const long long begin = clock64();
#pragma unroll 64
    for (int n = 0; n < kLinks; ++n) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at)::"memory");
    const long long end = clock64();
    if (at != reinterpret_cast<unsigned long long>(words + kLinks * apart)) __trap();
    *cycles = end - begin;
}

// Two readings of the clock with nothing between.
__global__ void nothing(long long* cycles) {
    const long long begin = clock64();
    *cycles = clock64() - begin;
}

// The same in the shared memory of the other CTA of a pair.
__global__ void __cluster_dims__(2, 1, 1) chase_remote(long long* cycles) {
    __shared__ unsigned own;
    unsigned rank, at;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(own) : "r"(shared_address(&own)), "r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(&own)), "r"(rank ^ 1));
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    const long long begin = clock64();
#pragma unroll 64
    for (int n = 0; n < kLinks; ++n) asm volatile("ld.shared::cluster.u32 %0, [%0];" : "+r"(at)::"memory");
    const long long end = clock64();
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    if (at == own) __trap();
    if (!threadIdx.x) cycles[blockIdx.x] = end - begin;
}

// Four warps that meet again and again.
__global__ void meetings(long long* cycles) {
    const long long begin = clock64();
#pragma unroll 64
    for (int n = 0; n < kLinks; ++n) asm volatile("bar.sync 1, 128;" ::: "memory");
    const long long end = clock64();
    if (!threadIdx.x) cycles[blockIdx.x] = end - begin;
}

// A thread that arrives at an mbarrier of its own, and waits for it.
__global__ void arrivals(long long* cycles) {
    __shared__ __align__(8) uint64_t barrier;
    const unsigned at = shared_address(&barrier);
    mbarrier_init(at);
    const long long begin = clock64();
#pragma unroll 8
    for (int n = 0; n < kLinks; ++n) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
        wait(at, n & 1);
    }
    *cycles = clock64() - begin;
}

inline void chains(Probes& p) {
    float* out = reinterpret_cast<float*>(p.data);
    p.tell("nothing", 1, 1, [&](int) { nothing<<<1, 1>>>(p.cycles); });
    p.tell("ex2_chain", kLinks, 1, [&](int) { links<Ex2, 1><<<1, 32>>>(out, p.cycles); });
    p.tell("ex2_apart", 8 * kLinks, 1, [&](int) { links<Ex2, 8><<<1, 32>>>(out, p.cycles); });
    p.tell("fma_chain", kLinks, 1, [&](int) { links<Fma, 1><<<1, 32>>>(out, p.cycles); });
    p.tell("alu_chain", 2 * kLinks, 1, [&](int) { links<Alu, 1><<<1, 32>>>(out, p.cycles); });
    p.tell("alu_apart", 16 * kLinks, 1, [&](int) { links<Alu, 8><<<1, 32>>>(out, p.cycles); });
    p.tell("pack_chain", kLinks, 1, [&](int) { links<Pack, 1><<<1, 32>>>(out, p.cycles); });
    p.tell("pack_apart", 8 * kLinks, 1, [&](int) { links<Pack, 8><<<1, 32>>>(out, p.cycles); });
    p.tell("from_integer_chain", kLinks, 1, [&](int) { links<FromInteger, 1><<<1, 32>>>(out, p.cycles); });
    p.tell("from_integer_apart", 8 * kLinks, 1, [&](int) { links<FromInteger, 8><<<1, 32>>>(out, p.cycles); });
    p.tell("convert_chain", kLinks, 1, [&](int) { links<Convert, 1><<<1, 32>>>(out, p.cycles); });
    p.tell("convert_apart", 8 * kLinks, 1, [&](int) { links<Convert, 8><<<1, 32>>>(out, p.cycles); });
    p.tell("shuffle_chain", kLinks, 1, [&](int) { links<Shuffle, 1><<<1, 32>>>(out, p.cycles); });
    unsigned long long* word = reinterpret_cast<unsigned long long*>(p.data);
    p.tell("shared_chain", kLinks, 1, [&](int) { chase<<<1, 1>>>(word, true, p.cycles); });
    p.tell("global_chain", kLinks, 1, [&](int) { chase<<<1, 1>>>(word, false, p.cycles); });
    // Far enough apart for rows of memory of their own, and few pages; what is set to zero then takes their place in
    // L2.
    const size_t half = p.bytes / 2, apart = std::min<size_t>(16384, half / (kLinks + 2) & ~size_t(7));
    p.tell("memory_chain", kLinks, 1, [&](int) {
        thread_words<<<1, 128>>>(p.data, apart);
        need(cudaMemset(p.data + half, 0, half), "memory_chain");
        chase_far<<<1, 1>>>(p.data, apart, p.cycles);
    });
    p.tell("remote_chain", kLinks, 2, [&](int) { chase_remote<<<2, 1>>>(p.cycles); });
    p.tell("meetings", kLinks, 1, [&](int) { meetings<<<1, 128>>>(p.cycles); });
    p.tell("arrivals", kLinks, 1, [&](int) { arrivals<<<1, 1>>>(p.cycles); });
}
