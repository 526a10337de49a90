// What launches cost in a replayed graph, where each may overlap the one before it, and the clock of an SM without
// load.
#pragma once

#include <functional>

#include "tell.cuh"

__global__ void spin(long long cycles, unsigned long long* nanoseconds) {
    unsigned long long from, to;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
    const long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(to));
    if (!threadIdx.x && !blockIdx.x) *nanoseconds = to - from;
}

// As our kernels: it begins beside the grid before it, waits for that, and works.
__global__ void work(long long cycles) {
    asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory");
    const long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
}

inline void enqueue(cudaStream_t stream, int ctas, long long cycles, bool overlaps) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = ctas;
    config.blockDim = 128;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = overlaps;
    need(cudaLaunchKernelEx(&config, work, cycles), "cudaLaunchKernelEx");
}

// Microseconds of a graph of what `fill` puts on a stream.
inline std::vector<double> graph_times(const std::function<void(cudaStream_t)>& fill) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t made;
    cudaEvent_t begin, end;
    need(cudaStreamCreate(&stream), "cudaStreamCreate");
    need(cudaEventCreate(&begin), "cudaEventCreate");
    need(cudaEventCreate(&end), "cudaEventCreate");
    need(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    fill(stream);
    need(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    need(cudaGraphInstantiate(&made, graph, 0), "cudaGraphInstantiate");
    std::vector<double> took;
    for (int r = 0; r < kRepeats + 1; ++r) {
        float ms = 0;
        need(cudaEventRecord(begin, stream), "cudaEventRecord");
        need(cudaGraphLaunch(made, stream), "cudaGraphLaunch");
        need(cudaEventRecord(end, stream), "cudaEventRecord");
        need(cudaEventSynchronize(end), "cudaEventSynchronize");
        need(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
        if (r) took.push_back(1e3 * ms);
    }
    need(cudaGraphExecDestroy(made), "cudaGraphExecDestroy");
    need(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return took;
}

inline void launches(Probes& p) {
    std::vector<double> clock;
    unsigned long long* nanoseconds = reinterpret_cast<unsigned long long*>(p.cycles);
    const long long spun = p.small ? 1000 : 100000000;
    for (int r = 0; r < kRepeats; ++r) {
        unsigned long long took = 0;
        spin<<<1, 32>>>(spun, nanoseconds);
        need(cudaMemcpy(&took, nanoseconds, sizeof took, cudaMemcpyDeviceToHost), "clock");
        clock.push_back(took ? 1e3 * spun / took : 0.0);
    }
    Probes::told("clock", 0, clock);
    // Pairs of a call and a merge are told beside calls alone, and calls of two lengths, so that what is no launch's
    // cost goes away.
    const int calls = p.small ? 2 : 500;
    const long long cycles = p.small ? 100 : 10000;
    const auto graph = [&](const char* name, long long each, bool overlaps, bool merges) {
        Probes::told(name, calls, graph_times([&](cudaStream_t stream) {
                         for (int n = 0; n < calls; ++n) {
                             enqueue(stream, p.sms, each, overlaps);
                             if (merges) enqueue(stream, p.sms, 0, true);
                         }
                     }));
    };
    graph("calls", cycles, true, false);
    graph("calls_double", 2 * cycles, true, false);
    graph("calls_alone", cycles, false, false);
    graph("calls_merged", cycles, true, true);
}
