// Launches kernels of the catalogue on a GPU, for compute-sanitizer to look at: ./launcher LIST FIRST runs the lines of
// LIST from FIRST on. A line: name, PTX file, kernel, CTAs, threads, CTAs of a cluster, dynamic shared bytes, launches,
// whether it takes tensor maps. Each begins with "begin NAME" and ends with "end NAME", or with the error that ends
// all.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

constexpr int kWords = 1024;  // of `in` and of `out`, as tools/catalogue.py has it

struct Line {
    std::string name, ptx, kernel;
    unsigned grid, block, cluster, shared, launches, maps;
};

static bool encode(CUtensorMap* map, void* base) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result))
        return false;
    const cuuint64_t dims[] = {16, kWords / 16}, strides[] = {64};
    const cuuint32_t box[] = {16, 8}, steps[] = {1, 1};
    return !reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
        map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, base, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static cudaError_t launch(cudaKernel_t kernel, const Line& line, void** arguments, bool programmatic) {
    cudaLaunchConfig_t config{};
    config.gridDim = line.grid;
    config.blockDim = line.block;
    config.dynamicSmemBytes = line.shared;
    cudaLaunchAttribute attributes[2]{};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {line.cluster, 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = line.cluster > 1 ? attributes : attributes + 1;
    config.numAttrs = (line.cluster > 1) + programmatic;
    return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments);
}

static cudaError_t run(const Line& line) {
    std::ifstream file(line.ptx);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    cudaLibrary_t library;
    cudaKernel_t kernel;
    if (cudaLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0) ||
        cudaLibraryGetKernel(&kernel, library, line.kernel.c_str())) {
        cudaGetLastError();
        std::cout << "refused " << line.name << std::endl;
        return cudaSuccess;
    }
    int *out, *in, numbers[kWords];
    for (int k = 0; k < kWords; ++k) numbers[k] = k;
    cudaMalloc(&out, 4 * kWords);
    cudaMalloc(&in, 4 * kWords);
    cudaMemset(out, 0, 2 * kWords);
    cudaMemcpy(in, numbers, 4 * kWords, cudaMemcpyHostToDevice);
    CUtensorMap of_in{}, of_out{};
    if (line.maps && !(encode(&of_in, in) && encode(&of_out, out))) return cudaErrorInvalidValue;
    void* arguments[] = {&out, &in, &of_in, &of_out};
    cudaError_t status = cudaSuccess;
    for (unsigned n = 0; n < line.launches && !status; ++n) status = launch(kernel, line, arguments, n > 0);
    const cudaError_t later = cudaDeviceSynchronize();
    cudaFree(out);
    cudaFree(in);
    cudaLibraryUnload(library);
    return status ? status : later;
}

int main(int, char** argv) {
    std::ifstream list(argv[1]);
    std::string text;
    for (int n = 0; std::getline(list, text); ++n) {
        Line line;
        std::istringstream(text) >> line.name >> line.ptx >> line.kernel >> line.grid >> line.block >> line.cluster >>
            line.shared >> line.launches >> line.maps;
        if (n < std::stoi(argv[2])) continue;
        std::cout << "begin " << line.name << std::endl;
        if (const cudaError_t status = run(line)) {
            std::cout << "lost " << line.name << ' ' << cudaGetErrorName(status) << std::endl;
            return 1;
        }
        std::cout << "end " << line.name << std::endl;
    }
}
