// What a GPU's constants are, measured: each line of output is a probe, its size, and what each repeat took.
//   nvcc -std=c++17 -arch=sm_100a -o probes probes.cu && ./probes [SMALL]
// Times are cycles of an SM's clock, by clock64, of the slowest CTA; those of `calls` are microseconds, `clock` is MHz.
// SMALL makes everything so small that an emulator runs it: its numbers mean nothing.
#include "board.cuh"
#include "chains.cuh"
#include "copies.cuh"
#include "launches.cuh"
#include "products.cuh"
#include "tell.cuh"

int main(int argc, char**) {
    int sms = 0, major = 0;
    need(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
    need(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
    const bool small = argc > 1;
    if (small) sms = 2;
    const size_t own = small ? 1 << 17 : 16 << 20;
    Probes p{sms, small, major == 10, nullptr, own * sms, nullptr};
    need(cudaMalloc(&p.data, p.bytes), "cudaMalloc");
    need(cudaMemset(p.data, 0, p.bytes), "cudaMemset");
    need(cudaMalloc(&p.cycles, sizeof(long long) * sms), "cudaMalloc");
    chains(p);
    copies(p);
    products_by_size(p);
    launches(p);
    load(p);
    return 0;
}
