// What a launch in a CUDA graph costs where it waits for the one before it, on the GPU alone: the smallest kernel, on
// all SMs,
//   nvcc -arch=sm_90a -o launch launch.cu && ./launch

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void nothing(int* at) {
    if (at && threadIdx.x == 1024) *at = 1;
}

void need(cudaError_t code) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "launch: %s\n", cudaGetErrorString(code));
    std::exit(1);
}

int main() {
    constexpr int kLaunches = 1000, kTurns = 21;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t made;
    cudaEvent_t begin, end;
    need(cudaStreamCreate(&stream));
    need(cudaEventCreate(&begin));
    need(cudaEventCreate(&end));
    std::printf("ctas,threads,shared_bytes,us\n");
    need(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
    for (int ctas : {1, 132, 1056})
        for (int threads : {32, 384})
            for (int shared : {0, 200 << 10}) {
                need(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
                for (int n = 0; n < kLaunches; ++n) nothing<<<ctas, threads, shared, stream>>>(nullptr);
                need(cudaStreamEndCapture(stream, &graph));
                need(cudaGraphInstantiate(&made, graph, 0));
                std::vector<float> times(kTurns);
                for (float& time : times) {
                    need(cudaEventRecord(begin, stream));
                    need(cudaGraphLaunch(made, stream));
                    need(cudaEventRecord(end, stream));
                    need(cudaEventSynchronize(end));
                    need(cudaEventElapsedTime(&time, begin, end));
                }
                std::sort(times.begin(), times.end());
                std::printf("%d,%d,%d,%.3f\n", ctas, threads, shared, 1e3 * times[kTurns / 2] / kLaunches);
                need(cudaGraphExecDestroy(made));
                need(cudaGraphDestroy(graph));
            }
}
