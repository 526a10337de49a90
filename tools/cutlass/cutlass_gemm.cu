// One matrix product of CUTLASS's for sm_90a, as its collective builders put it together, and a program around it:
//   gemm M N K         launches it once
//   gemm M N K --time  measures it: the median of replays of a CUDA graph, over inputs that do not fit into L2 together
// What is built is said by macros, which tools/cutlass/__main__.py sets.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"

using namespace cute;

namespace product {

using Element = GEMM_ELEMENT;
using Output = cutlass::half_t;
using TileShape = Shape<Int<GEMM_M>, Int<GEMM_N>, Int<GEMM_K>>;
using ClusterShape = Shape<Int<GEMM_CLUSTER>, _1, _1>;
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;
constexpr int kAlignment = 16 / sizeof(Element);

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, RowMajor, 8, Output, RowMajor, 8,
    cutlass::epilogue::GEMM_EPILOGUE>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, RowMajor, kAlignment, Element, ColumnMajor,
    kAlignment, float, TileShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<sizeof(typename Epilogue::SharedStorage)>,
    cutlass::gemm::GEMM_MAINLOOP>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int>, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

void need(bool right, const char* what) {
    if (right) return;
    std::fprintf(stderr, "gemm: %s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
    std::exit(1);
}

void need(cudaError_t code, const char* what) { need(code == cudaSuccess, what); }

// Values of -1 to 1: what a product draws of power depends on its data, and zeros would run at a higher clock.
__global__ void fill(Element* values, size_t count, unsigned seed) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) {
        unsigned bits = (unsigned(i) + seed) * 2654435761u;
        bits ^= bits >> 15;
        bits *= 2246822519u;
        values[i] = Element(float(bits >> 8) / float(1 << 23) - 1.0f);
    }
}

struct Problem {
    int m, n, k;
    Element *a, *b;
    Output* d;
};

Gemm prepared(const Problem& problem, int multiprocessors) {
    const auto [m, n, k, a, b, d] = problem;
    typename Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm,
                                       {m, n, k},
                                       {a, cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, {m, k, 1}), b,
                                        cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, {n, k, 1})},
                                       {{1.0f, 0.0f},
                                        nullptr,
                                        cutlass::make_cute_packed_stride(typename Kernel::StrideC{}, {m, n, 1}),
                                        d,
                                        cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, {m, n, 1})}};
    arguments.hw_info.sm_count = multiprocessors;
    need(Gemm::can_implement(arguments) == cutlass::Status::kSuccess, "CUTLASS cannot do this size");
    need(Gemm::get_workspace_size(arguments) == 0, "this kernel wants a workspace");
    Gemm gemm;
    need(gemm.initialize(arguments, nullptr) == cutlass::Status::kSuccess, "initialize");
    return gemm;
}

Problem allocated(int m, int n, int k) {
    Problem problem{m, n, k, nullptr, nullptr, nullptr};
    need(cudaMalloc(&problem.a, sizeof(Element) * m * k), "cudaMalloc");
    need(cudaMalloc(&problem.b, sizeof(Element) * n * k), "cudaMalloc");
    need(cudaMalloc(&problem.d, sizeof(Output) * m * n), "cudaMalloc");
    return problem;
}

double median_us(std::vector<Gemm>& gemms) {
    constexpr int kReplays = 21;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t made;
    cudaEvent_t begin, end;
    need(cudaStreamCreate(&stream), "cudaStreamCreate");
    need(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    for (Gemm& gemm : gemms) need(gemm.run(stream) == cutlass::Status::kSuccess, "run");
    need(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    need(cudaGraphInstantiate(&made, graph, 0), "cudaGraphInstantiate");
    need(cudaEventCreate(&begin), "cudaEventCreate");
    need(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<float> times;
    for (int replay = -3; replay < kReplays; ++replay) {
        need(cudaEventRecord(begin, stream), "cudaEventRecord");
        need(cudaGraphLaunch(made, stream), "cudaGraphLaunch");
        need(cudaEventRecord(end, stream), "cudaEventRecord");
        need(cudaEventSynchronize(end), "the kernel");
        float milliseconds;
        need(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
        if (replay >= 0) times.push_back(milliseconds);
    }
    std::sort(times.begin(), times.end());
    return 1e3 * times[kReplays / 2] / gemms.size();
}

}  // namespace product

int main(int count, char** words) {
    using namespace product;
    const bool time = count == 5 && !std::strcmp(words[4], "--time");
    need(count == 4 || time, "usage: gemm M N K [--time]");
    const int m = std::atoi(words[1]), n = std::atoi(words[2]), k = std::atoi(words[3]);
    int multiprocessors;
    need(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
    if (!time) {
        Gemm gemm = prepared(allocated(m, n, k), multiprocessors);
        need(gemm.run() == cutlass::Status::kSuccess, "run");
        need(cudaDeviceSynchronize(), "the kernel");
        return 0;
    }
    const size_t bytes = sizeof(Element) * (size_t(m) * k + size_t(n) * k) + sizeof(Output) * size_t(m) * n;
    const size_t copies = std::max<size_t>(4, (size_t(200) << 20) / bytes + 1);
    std::vector<Gemm> gemms;
    for (size_t i = 0; i < copies; ++i) {
        const Problem problem = allocated(m, n, k);
        fill<<<1024, 256>>>(problem.a, size_t(m) * k, unsigned(2 * i));
        fill<<<1024, 256>>>(problem.b, size_t(n) * k, unsigned(2 * i + 1));
        gemms.push_back(prepared(problem, multiprocessors));
    }
    need(cudaDeviceSynchronize(), "fill");
    std::printf("%.3f\n", median_us(gemms));
}
