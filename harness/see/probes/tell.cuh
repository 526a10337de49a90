// What a probe prints, and what all of them need.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int kRepeats = 5;

inline void need(cudaError_t code, const char* what) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "probes: %s: %s\n", what, cudaGetErrorString(code));
    std::exit(1);
}

struct Probes {
    int sms;
    bool small, tensor_memory;  // whether it is a GPU that has tensor memory
    char* data;
    size_t bytes;       // of `data`
    long long* cycles;  // one a CTA

    // `launch(repeat)` leaves the cycles of `ctas` CTAs; a repeat is those of the slowest.
    template <class F>
    void tell(const char* name, double size, int ctas, F launch) {
        std::printf("%s,%.10g", name, size);
        for (int r = 0; r < kRepeats; ++r) {
            launch(r);
            need(cudaGetLastError(), name);
            std::vector<long long> took(ctas);
            need(cudaMemcpy(took.data(), cycles, sizeof(long long) * ctas, cudaMemcpyDeviceToHost), name);
            std::printf(",%lld", *std::max_element(took.begin(), took.end()));
        }
        std::printf("\n");
        std::fflush(stdout);
    }

    static void told(const char* name, double size, const std::vector<double>& repeats) {
        std::printf("%s,%.10g", name, size);
        for (double repeat : repeats) std::printf(",%.10g", repeat);
        std::printf("\n");
        std::fflush(stdout);
    }
};

__device__ inline unsigned shared_address(const void* at) {
    return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

__device__ inline void mbarrier_init(unsigned barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

__device__ inline void mbarrier_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ inline void wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{ .reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again; }" ::"r"(barrier),
        "r"(parity)
        : "memory");
}
