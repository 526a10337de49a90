// Clock and power while all SMs multiply. Power is what the driver's library of management says, where there is one.
#pragma once

#include <dlfcn.h>

#include "copies.cuh"
#include "products.cuh"
#include "tell.cuh"

class Board {  // NVML: this GPU's
public:
    Board() {
        char bus[32];
        library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        if (!library_ || cudaDeviceGetPCIBusId(bus, sizeof bus, 0) != cudaSuccess) return;
        const auto start = function<int()>("nvmlInit_v2");
        const auto find = function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
        power_ = function<int(void*, unsigned*)>("nvmlDeviceGetPowerUsage");
        limit_ = function<int(void*, unsigned*)>("nvmlDeviceGetEnforcedPowerLimit");
        if (!start || !find || start() != 0 || find(bus, &device_) != 0) device_ = nullptr;
    }
    // Watts; 0 where it is not said.
    double power() const { return said(power_); }
    double limit() const { return said(limit_); }

private:
    template <class F>
    F* function(const char* name) const {
        return reinterpret_cast<F*>(dlsym(library_, name));
    }
    double said(int (*ask)(void*, unsigned*)) const {
        unsigned milliwatts = 0;
        return device_ && ask && ask(device_, &milliwatts) == 0 ? milliwatts / 1e3 : 0.0;
    }

    void *library_ = nullptr, *device_ = nullptr;
    int (*power_)(void*, unsigned*) = nullptr;
    int (*limit_)(void*, unsigned*) = nullptr;
};

// Every SM multiplies for about a second a repeat, and reads from L2 meanwhile, as kernels do that keep the tensor core
// busy. The clock and the products are those of the repeat's last launch.
inline void load(Probes& p) {
    constexpr int kThreads = 256;
    const auto kernel = products<256, false, false, kThreads>;
    need(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(kProductShared)), "load");
    unsigned long long* nanoseconds = nullptr;
    need(cudaMalloc(&nanoseconds, sizeof(long long) * p.sms), "cudaMalloc");
    const int tiles = p.small ? 2 : 8192, launches = p.small ? 1 : 200;
    const int reads = p.small ? 2 : 8192;
    cudaStream_t beside;
    need(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    const Board board;
    long long* took_beside = nullptr;
    need(cudaMalloc(&took_beside, sizeof(long long) * p.sms), "cudaMalloc");
    std::vector<double> clock, rate, watts;
    for (int r = 0; r < kRepeats + 1; ++r) {
        for (int n = 0; n < launches; ++n) {
            kernel<<<p.sms, kThreads, kProductShared>>>(tiles, p.cycles, nanoseconds);
            stream<<<p.sms, 32, 4 * 16384, beside>>>(p.data, p.small ? 4 * 16384 : 128 << 10, 16384, 4, reads,
                                                     took_beside);
        }
        need(cudaGetLastError(), "load");
        double most = 0;
        while (cudaStreamQuery(nullptr) == cudaErrorNotReady) most = std::max(most, board.power());
        long long cycles = 0;
        unsigned long long took = 0;
        need(cudaMemcpy(&cycles, p.cycles, sizeof cycles, cudaMemcpyDeviceToHost), "load");
        need(cudaMemcpy(&took, nanoseconds, sizeof took, cudaMemcpyDeviceToHost), "load");
        need(cudaStreamSynchronize(beside), "load");
        if (!r) continue;  // it warms up
        clock.push_back(took ? 1e3 * cycles / took : 0.0);
        rate.push_back(double(cycles));
        watts.push_back(most);
    }
    const int groups = p.tensor_memory ? 1 : kThreads / 128;
    Probes::told("load_clock", 0, clock);
    Probes::told("load_products", double(tiles) * kSteps * groups, rate);
    if (watts.back() > 0) Probes::told("load_watts", 0, watts);
    if (board.limit() > 0) Probes::told("limit_watts", 0, std::vector<double>(kRepeats, board.limit()));
}
