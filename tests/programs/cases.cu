// What a program may ask of CUDA, a case by its name. Each prints what it found; test_cases.py has it.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace cg = cooperative_groups;

#define CHECK(call)                                                                                     \
    do {                                                                                                \
        const cudaError_t status_ = (call);                                                             \
        if (status_ != cudaSuccess) {                                                                   \
            std::printf("%s: %s (%s)\n", #call, cudaGetErrorName(status_), cudaGetErrorString(status_)); \
            std::exit(9);                                                                               \
        }                                                                                               \
    } while (0)

static void tell(const char* what, cudaError_t status) {
    std::printf("%s: %s, %s\n", what, cudaGetErrorName(status), cudaGetErrorString(status));
}

__global__ void add(const float* a, const float* b, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

static int vector_add(int n = 1000) {
    std::vector<float> a(n), b(n), out(n);
    for (int i = 0; i < n; ++i) a[i] = i, b[i] = 2 * i;
    float *da, *db, *dout;
    CHECK(cudaMalloc(&da, n * sizeof(float)));
    CHECK(cudaMalloc(&db, n * sizeof(float)));
    CHECK(cudaMalloc(&dout, n * sizeof(float)));
    CHECK(cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(db, b.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    add<<<(n + 255) / 256, 256>>>(da, db, dout, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(out.data(), dout, n * sizeof(float), cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < n; ++i) wrong += out[i] != 3 * i;
    std::printf("%d wrong\n", wrong);
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dout));
    return 0;
}

__global__ void turns(int* data, int rounds) {
    cg::grid_group grid = cg::this_grid();
    for (int r = 0; r < rounds; ++r) {
        if (grid.thread_rank() == r % grid.size()) data[r + 1] = data[r] + 1;
        grid.sync();
    }
}

static int cooperative() {
    int *data, rounds = 20, sms = 0, each = 0, found = 0;
    CHECK(cudaMalloc(&data, 21 * sizeof(int)));
    CHECK(cudaMemset(data, 0, sizeof(int)));
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, turns, 64, 0));
    void* arguments[] = {&data, &rounds};
    CHECK(cudaLaunchCooperativeKernel(turns, 4, 64, arguments));
    CHECK(cudaMemcpy(&found, data + rounds, sizeof found, cudaMemcpyDeviceToHost));
    std::printf("%d after %d rounds; %d multiprocessors of %d CTAs\n", found, rounds, sms, each);
    tell("too many", cudaLaunchCooperativeKernel(turns, sms * each + 1, 64, arguments));
    return 0;
}

__global__ void neighbours(int* out) {
    __shared__ int mine;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) mine = 100 + blockIdx.x;
    cluster.sync();
    const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
    if (threadIdx.x == 0) out[blockIdx.x] = *cluster.map_shared_rank(&mine, next);
    cluster.sync();
}

static int cluster() {
    int *out, host[8], most = 0;
    CHECK(cudaMalloc(&out, 2 * sizeof host));
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {4, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = 8;
    config.blockDim = 32;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, neighbours, out));
    CHECK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDefault));
    for (int value : host) std::printf("%d ", value);
    CHECK(cudaOccupancyMaxActiveClusters(&most, neighbours, &config));
    std::printf("; %d clusters at a time\n", most);
    tell("of no configuration", cudaOccupancyMaxActiveClusters(&most, neighbours, nullptr));
    tell("the largest of none", cudaOccupancyMaxPotentialClusterSize(&most, neighbours, nullptr));
    attribute.val.clusterDim = {16, 1, 1};
    config.gridDim = 16;
    tell("16 CTAs", cudaLaunchKernelEx(&config, neighbours, out));
    CHECK(cudaFuncSetAttribute(neighbours, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    tell("16 CTAs, allowed", cudaLaunchKernelEx(&config, neighbours, out));
    return 0;
}

__constant__ int scale[4];
__device__ int total = 5;
__managed__ int shared_total = 7;

__global__ void accumulate() {
    total += scale[threadIdx.x];
    shared_total += total;
}

static int symbols() {
    const int values[] = {10, 20, 30, 40};
    int found = 0;
    void* address = nullptr;
    size_t size = 0;
    CHECK(cudaMemcpyToSymbol(scale, values, sizeof values));
    shared_total += 1;
    accumulate<<<1, 1>>>();
    CHECK(cudaMemcpyFromSymbol(&found, total, sizeof found));
    CHECK(cudaGetSymbolSize(&size, scale));
    CHECK(cudaGetSymbolAddress(&address, scale));
    CHECK(cudaMemcpy(&found, static_cast<int*>(address) + 2, sizeof found, cudaMemcpyDeviceToHost));
    std::printf("scale[2] %d of %zu bytes, ", found, size);
    CHECK(cudaMemcpyFromSymbol(&found, total, sizeof found));
    std::printf("total %d, shared %d\n", found, shared_total);
    tell("beyond its end", cudaMemcpyToSymbol(scale, values, sizeof values, 4));
    return 0;
}

template <class F>
static F driver(const char* name) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion(name, &entry, 13000, cudaEnableDefault, &found));
    if (!entry) std::printf("%s is missing\n", name), std::exit(8);
    return reinterpret_cast<F>(entry);
}

__global__ void address_of_total(void** out) { *out = &total; }

// Variables of a module, and what the driver says of an address.
static int pointers() {
    void *of_scale, *of_total, **given;
    CHECK(cudaGetSymbolAddress(&of_scale, scale));
    CHECK(cudaMalloc(&given, sizeof *given));
    address_of_total<<<1, 1>>>(given);
    CHECK(cudaMemcpy(&of_total, given, sizeof of_total, cudaMemcpyDeviceToHost));
    int local = 0, *pinned;
    CHECK(cudaMallocHost(&pinned, 16));
    const void* all[] = {of_total, static_cast<char*>(of_scale) + 4, &shared_total, given, pinned + 1, &local};
    const auto range = driver<CUresult (*)(CUdeviceptr*, size_t*, CUdeviceptr)>("cuMemGetAddressRange");
    const auto ask = driver<CUresult (*)(void*, CUpointer_attribute, CUdeviceptr)>("cuPointerGetAttribute");
    const auto ask_all = driver<CUresult (*)(unsigned, CUpointer_attribute*, void**, CUdeviceptr)>("cuPointerGetAttributes");
    for (const void* p : all) {
        cudaPointerAttributes found;
        CHECK(cudaPointerGetAttributes(&found, p));
        const auto at = reinterpret_cast<CUdeviceptr>(p);
        CUdeviceptr base = 0;
        size_t size = 0;
        unsigned kind = 9;
        int ordinal = 9;
        bool managed = false;
        CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
        void* into[] = {&managed, &ordinal};
        const CUresult in_range = range(&base, &size, at), one = ask(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
        const CUresult several = ask_all(2, wanted, into, at);
        std::printf("type %d, device %d, %s %s; range %d: %zu, %zu in; %d: kind %u, %d: managed %d, device %d\n", found.type,
                    found.device, found.devicePointer == p ? "there" : "not there", found.hostPointer == p ? "here" : "not here",
                    in_range, size, size ? size_t(at - base) : 0, one, kind, several, managed, ordinal);
    }
    return 0;
}

__global__ void fill_with(int* data, int value) { data[blockIdx.x * blockDim.x + threadIdx.x] = value; }

#include "cases_order.cuh"

static int pools() {
    int *a, *b, supported = 0;
    uint64_t used, most;
    cudaMemPool_t standard, own;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
    CHECK(cudaDeviceGetDefaultMemPool(&standard, 0));
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, 0};
    CHECK(cudaMemPoolCreate(&own, &properties));
    CHECK(cudaMallocFromPoolAsync(&a, 256, own, stream));
    CHECK(cudaMallocAsync(&b, 512, stream));
    fill_with<<<2, 32, 0, stream>>>(a, 5);
    CHECK(cudaFreeAsync(a, stream));
    for (cudaMemPool_t pool : {standard, own}) {
        CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
        CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &most));
        std::printf("%llu of %llu, ", (unsigned long long)used, (unsigned long long)most);
    }
    CHECK(cudaDeviceSetMemPool(0, own));
    CHECK(cudaMemPoolDestroy(own));
    CHECK(cudaDeviceGetMemPool(&own, 0));
    std::printf("supported %d, back to the default one %d\n", supported, own == standard);
    tell("the default one", cudaMemPoolDestroy(standard));
    return 0;
}

__global__ void make(char** out, size_t size) { out[threadIdx.x] = static_cast<char*>(malloc(size)); }
__global__ void unmake(char** out) { free(out[threadIdx.x]); }

static int heap() {
    char **out, *made[4], byte;
    size_t limit = 0;
    CHECK(cudaMalloc(&out, sizeof made));
    CHECK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    tell("set", cudaDeviceSetLimit(cudaLimitMallocHeapSize, 2 * limit));
    make<<<1, 4>>>(out, 5 << 20);
    CHECK(cudaMemcpy(made, out, sizeof made, cudaMemcpyDeviceToHost));
    std::printf("%zu: %d %d %d %d\n", limit, made[0] != nullptr, made[1] != nullptr, made[2] != nullptr, made[3] != nullptr);
    tell("set again", cudaDeviceSetLimit(cudaLimitMallocHeapSize, limit));
    tell("copied", cudaMemcpy(&byte, made[0], 1, cudaMemcpyDeviceToHost));
    tell("freed", cudaFree(made[0]));
    unmake<<<1, 4>>>(out);
    tell("freed by a kernel", cudaDeviceSynchronize());
    CHECK(cudaDeviceReset());
    CHECK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    std::printf("%zu\n", limit);
    return 0;
}

__global__ void twice(int* data) { data[threadIdx.x] *= 2; }

static int streams() {
    cudaStream_t one, two;
    cudaEvent_t begin, end;
    int *pinned, *device, called = 0;
    CHECK(cudaStreamCreate(&one));
    CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaMallocHost(&pinned, 32 * sizeof(int)));
    CHECK(cudaMallocAsync(&device, 32 * sizeof(int), one));
    for (int i = 0; i < 32; ++i) pinned[i] = i;
    CHECK(cudaEventRecord(begin, one));
    CHECK(cudaMemcpyAsync(device, pinned, 32 * sizeof(int), cudaMemcpyHostToDevice, one));
    twice<<<1, 32, 0, one>>>(device);
    CHECK(cudaEventRecord(end, one));
    CHECK(cudaStreamWaitEvent(two, end, 0));
    twice<<<1, 32, 0, two>>>(device);
    CHECK(cudaMemcpyAsync(pinned, device, 32 * sizeof(int), cudaMemcpyDeviceToHost, two));
    CHECK(cudaLaunchHostFunc(two, [](void* where) { *static_cast<int*>(where) = 1; }, &called));
    CHECK(cudaStreamSynchronize(two));
    CHECK(cudaEventQuery(end));
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    std::printf("%d %d, called %d, time %s\n", pinned[1], pinned[31], called, ms > 0 ? "passes" : "stands");
    CHECK(cudaFreeAsync(device, one));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaStreamDestroy(one));
    return 0;
}

__global__ void greet(int n) { printf("thread %d of block %d, n %d\n", threadIdx.x, blockIdx.x, n); }

static int print() {
    greet<<<2, 2>>>(42);
    std::printf("before the synchronisation\n");
    CHECK(cudaDeviceSynchronize());
    std::printf("behind it\n");
    return 0;
}

static int print_lost() {
    greet<<<1, 1>>>(1);
    return 0;
}

__global__ void insist(int n) { assert(n < 5); }

static int assertion() {
    insist<<<2, 2>>>(7);
    tell("launch", cudaGetLastError());
    tell("synchronise", cudaDeviceSynchronize());
    tell("and then", cudaMemset(nullptr, 0, 1));
    tell("last", cudaGetLastError());
    tell("last", cudaGetLastError());
    CHECK(cudaDeviceReset());
    tell("reset", cudaGetLastError());
    return vector_add();
}

__global__ void stumble(int how, int* data) {
    if (how == 0) asm("trap;");
    if (how == 1) *reinterpret_cast<volatile int*>(reinterpret_cast<char*>(data) + 2) = 1;
    if (how == 2) data[1 << 20] = 1;
    if (how == 3)
        while (atomicAdd(data, 0) == 0) {
        }
}

static int faults(int how) {
    int* data;
    CHECK(cudaMalloc(&data, 64));
    CHECK(cudaMemset(data, 0, 64));
    stumble<<<1, 1>>>(how, data);
    tell("launch", cudaGetLastError());
    tell("synchronise", cudaDeviceSynchronize());
    return 3;
}

__global__ void __launch_bounds__(64) bounded(int* out) {
    extern __shared__ int dynamic[];
    dynamic[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = dynamic[threadIdx.x];
}

static int errors() {
    int *data, host[4];
    CHECK(cudaMalloc(&data, 64 * sizeof(int)));
    bounded<<<1, 2048>>>(data);
    tell("2048 threads", cudaGetLastError());
    bounded<<<0, 32>>>(data);
    tell("no CTA", cudaGetLastError());
    bounded<<<1, 128, 1024>>>(data);
    tell("beyond its bounds", cudaGetLastError());
    bounded<<<1, 64, 100000>>>(data);
    tell("100000 bytes", cudaGetLastError());
    CHECK(cudaFuncSetAttribute(bounded, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000));
    bounded<<<1, 64, 100000>>>(data);
    tell("asked for", cudaGetLastError());
    tell("228 KiB", cudaFuncSetAttribute(bounded, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10));
    tell("peeked", cudaPeekAtLastError());
    tell("taken", cudaGetLastError());
    tell("none left", cudaGetLastError());
    tell("a copy too long", cudaMemcpy(host, data, 1 << 20, cudaMemcpyDeviceToHost));
    tell("the wrong way", cudaMemcpy(data, host, sizeof host, cudaMemcpyDeviceToHost));
    tell("freed twice", (cudaFree(data), cudaFree(data)));
    tell("freed null", cudaFree(nullptr));
    tell("no symbol", cudaMemcpyToSymbol(&data, host, 4));
    tell("device 1", cudaSetDevice(1));
    void* much = nullptr;
    tell("an exabyte", cudaMalloc(&much, size_t{1} << 60));
    std::printf("%s\n", cudaGetErrorName(static_cast<cudaError_t>(12345)));
    return 0;
}

static int copies() {
    const int width = 5, height = 4, depth = 3;
    unsigned char *device, *other, host[depth][height][width], back[depth][height][width] = {};
    size_t pitch = 0;
    for (int i = 0; i < width * height * depth; ++i) (&host[0][0][0])[i] = i;
    CHECK(cudaMallocPitch(&device, &pitch, width, height));
    CHECK(cudaMemset2D(device, pitch, 9, width, height));
    CHECK(cudaMemcpy2D(device, pitch, host[1], width, width, height, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2D(back[0], width, device, pitch, width, height, cudaMemcpyDeviceToHost));
    std::printf("2D %d, ", std::memcmp(back[0], host[1], sizeof back[0]));
    cudaPitchedPtr box;
    CHECK(cudaMalloc3D(&box, make_cudaExtent(width, height, depth)));
    cudaMemcpy3DParms copy{};
    copy.srcPtr = make_cudaPitchedPtr(host, width, width, height);
    copy.dstPtr = box;
    copy.extent = make_cudaExtent(width, height, depth);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    copy.srcPtr = box;
    copy.dstPtr = make_cudaPitchedPtr(back, width, width, height);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    std::printf("3D %d, ", std::memcmp(back, host, sizeof back));
    CHECK(cudaMalloc(&other, 64));
    CHECK(cudaMemset(other, 3, 64));
    CHECK(cudaMemcpy(other + 1, device + pitch, width, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(back, other, 7, cudaMemcpyDefault));
    std::printf("on the device %d %d %d %d\n", back[0][0][0], back[0][0][1], back[0][1][0], back[0][1][1]);
    return 0;
}

__global__ void increment(int* data, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) data[i] += 1;
}

static int shared_memory() {
    const int n = 3000;
    int *managed, *pinned, *seen, plain[64] = {1, 2, 3};
    CHECK(cudaMallocManaged(&managed, n * sizeof(int)));
    CHECK(cudaHostAlloc(&pinned, n * sizeof(int), cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&seen, pinned, 0));
    for (int i = 0; i < n; ++i) managed[i] = i, pinned[i] = -i;
    for (int turn = 0; turn < 3; ++turn) {
        increment<<<1, 64>>>(managed, n);
        increment<<<1, 64>>>(seen, n);
        CHECK(cudaDeviceSynchronize());
        managed[turn] = 100;
    }
    std::printf("%d %d %d %d, %d %d, ", managed[0], managed[1], managed[2], managed[n - 1], pinned[0], pinned[n - 1]);
    CHECK(cudaHostRegister(plain, sizeof plain, cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer(&seen, plain, 0));
    increment<<<1, 32>>>(seen, 3);
    CHECK(cudaDeviceSynchronize());
    std::printf("%d %d %d %d, ", plain[0], plain[1], plain[2], plain[3]);
    CHECK(cudaHostUnregister(plain));
    for (const void* p : {static_cast<const void*>(managed + 1), static_cast<const void*>(pinned), static_cast<const void*>(plain)}) {
        cudaPointerAttributes found;
        CHECK(cudaPointerGetAttributes(&found, p));
        std::printf("type %d ", found.type);
    }
    CHECK(cudaMemcpy(plain, managed, sizeof plain, cudaMemcpyDefault));
    std::printf("copied %d\n", plain[2]);
    return 0;
}

__global__ void more_than_asked_for(int* out) {
    __shared__ int words[50000 / 4];
    words[threadIdx.x] = threadIdx.x;
    words[12499 - threadIdx.x] = 5;
    if (!threadIdx.x) *out = words[0] + words[12499];
}

static int static_shared() {
    cudaFuncAttributes f;
    int *out, host = 0;
    CHECK(cudaMalloc(&out, sizeof host));
    more_than_asked_for<<<1, 32>>>(out);
    tell("50,000 static bytes", cudaGetLastError());
    CHECK(cudaMemcpy(&host, out, sizeof host, cudaMemcpyDefault));
    CHECK(cudaFuncGetAttributes(&f, more_than_asked_for));
    std::printf("%d; %zu bytes shared, %d dynamic\n", host, f.sharedSizeBytes, f.maxDynamicSharedSizeBytes);
    more_than_asked_for<<<1, 32, 16>>>(out);
    tell("16 dynamic ones more", cudaGetLastError());
    CHECK(cudaFuncSetAttribute(more_than_asked_for, cudaFuncAttributeMaxDynamicSharedMemorySize, 16));
    more_than_asked_for<<<1, 32, 16>>>(out);
    tell("the same, permitted", cudaGetLastError());
    return 0;
}

static int properties() {
    cudaDeviceProp p;
    cudaFuncAttributes f;
    int count = 0, grid = 0, block = 0, version = 0;
    CHECK(cudaGetDeviceCount(&count));
    CHECK(cudaGetDeviceProperties(&p, 0));
    CHECK(cudaRuntimeGetVersion(&version));
    std::printf("%d device: %s, sm_%d%d, %d multiprocessors, %zu bytes shared, warps of %d, CUDA %d\n", count,
                p.name, p.major, p.minor, p.multiProcessorCount, p.sharedMemPerBlockOptin, p.warpSize, version);
    CHECK(cudaFuncGetAttributes(&f, neighbours));
    std::printf("neighbours: %zu bytes shared, %d threads, %d dynamic\n", f.sharedSizeBytes, f.maxThreadsPerBlock,
                f.maxDynamicSharedSizeBytes);
    CHECK(cudaFuncGetAttributes(&f, bounded));
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, bounded));
    std::printf("bounded: %d threads; best %d of %d\n", f.maxThreadsPerBlock, grid, block);
    return 0;
}

#if __CUDA_ARCH__ >= 900 || !defined(__CUDA_ARCH__)
__global__ void copy_box(const __grid_constant__ CUtensorMap map, int* out) {
    __shared__ alignas(128) int box[8 * 4];
    __shared__ alignas(8) unsigned long long barrier;
    const unsigned to = __cvta_generic_to_shared(box), at = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("fence.proxy.async.shared::cta;");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(int(sizeof box)));
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
            "l"(&map), "r"(4), "r"(2), "r"(at)
            : "memory");
    }
    __syncthreads();
    unsigned done = 0;
    while (!done)
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(at)
            : "memory");
    out[threadIdx.x] = box[threadIdx.x];
}
#endif

static int tensor_map() {
    using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                                const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    const auto encode = reinterpret_cast<Encode>(entry);
    int host[16 * 16], back[32], *data, *out;
    for (int i = 0; i < 256; ++i) host[i] = i;
    CHECK(cudaMalloc(&data, sizeof host));
    CHECK(cudaMalloc(&out, sizeof back));
    CHECK(cudaMemcpy(data, host, sizeof host, cudaMemcpyHostToDevice));
    CUtensorMap map;
    const cuuint64_t dims[] = {16, 16}, strides[] = {64}, odd[] = {60};
    const cuuint32_t box[] = {8, 4}, steps[] = {1, 1};
    const auto made = [&](const cuuint64_t* by) {
        return encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, data, dims, by, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                      CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    std::printf("strides of 60 bytes: %d, ", made(odd));
    std::printf("of 64: %d; ", made(strides));
    copy_box<<<1, 32>>>(map, out);
    CHECK(cudaMemcpy(back, out, sizeof back, cudaMemcpyDeviceToHost));
    std::printf("%d %d %d %d\n", back[0], back[7], back[8], back[31]);
    return 0;
}

#include "cases_textures.cuh"

static int driver_api() {
    CUmodule module;
    CUfunction function, none;
    CUdeviceptr out, counter;
    size_t size = 0;
    unsigned by = 2, result = 0;
    CHECK(cudaFree(nullptr));  // so that there is a context
    driver<CUresult (*)(CUmodule*, const void*)>("cuModuleLoadData")(&module, kPtx);
    const auto get = driver<CUresult (*)(CUfunction*, CUmodule, const char*)>("cuModuleGetFunction");
    std::printf("bump %d, none %d, ", get(&function, module, "bump"), get(&none, module, "none"));
    driver<CUresult (*)(CUdeviceptr*, size_t*, CUmodule, const char*)>("cuModuleGetGlobal")(&counter, &size, module, "counter");
    driver<CUresult (*)(CUdeviceptr*, size_t)>("cuMemAlloc")(&out, 4);
    void* arguments[] = {&out, &by};
    driver<decltype(&cuLaunchKernel)>("cuLaunchKernel")(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
    driver<CUresult (*)(void*, CUdeviceptr, size_t)>("cuMemcpyDtoH")(&result, out, 4);
    std::printf("%u by a variable of %zu bytes\n", result, size);
    return 0;
}

__global__ void race(int* data) {
    if (threadIdx.x == 0) data[0] = 1;
    data[1 + threadIdx.x] = data[0];
}

static int hazard() {
    int *data, host[65];
    CHECK(cudaMalloc(&data, sizeof host));
    race<<<1, 64>>>(data);
    CHECK(cudaMemcpy(host, data, sizeof host, cudaMemcpyDeviceToHost));
    return 0;
}

static int refused() {
    cudaMipmappedArray_t array;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    tell("array", cudaMallocMipmappedArray(&array, &format, {4, 4, 0}, 2));
    tell("array", cudaMallocMipmappedArray(&array, &format, {4, 4, 0}, 2));
    return 0;
}

static int forked() {
    int* data;
    CHECK(cudaMalloc(&data, 4));
    std::fflush(stdout);
    if (fork() == 0) {
        tell("in the child", cudaMalloc(&data, 4));
        std::exit(0);
    }
    wait(nullptr);
    tell("in the parent", cudaMemset(data, 0, 4));
    return 0;
}

static int forked_first() {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        hazard();
        std::_Exit(0);
    }
    waitpid(child, nullptr, 0);
    return vector_add();
}

static int orphan() {
    int done[2];
    char byte = 0;
    if (pipe(done)) return 1;
    if (fork() == 0) {
        vector_add();
        if (write(done[1], &byte, 1) != 1) return 1;
        alarm(60);
        pause();
    }
    if (read(done[0], &byte, 1) != 1) return 1;
    return vector_add();
}

static int killed_in_a_launch() {
    signal(SIGALRM, [](int) { std::_Exit(6); });
    int* data;
    CHECK(cudaMalloc(&data, 512));
    CHECK(cudaMemset(data, 0, 512));
    race<<<1, 64>>>(data);
    std::thread([] { ualarm(300000, 0); }).join();
    stumble<<<1 << 16, 1024>>>(3, data);
    return 0;
}

int main(int count, char** words) {
    const char* name = count > 1 ? words[1] : "";
    const struct {
        const char* name;
        int (*run)();
    } cases[] = {
        {"vector_add", [] { return vector_add(); }}, {"many", [] { return vector_add(40 * 256); }},
        {"cooperative", cooperative}, {"cluster", cluster}, {"symbols", symbols}, {"pointers", pointers}, {"heap", heap}, {"streams", streams},
        {"print", print}, {"print_lost", print_lost}, {"assertion", assertion},
        {"errors", errors}, {"copies", copies}, {"shared_memory", shared_memory}, {"static_shared", static_shared}, {"properties", properties},
        {"tensor_map", tensor_map}, {"textures", textures}, {"driver_textures", driver_textures}, {"driver_api", driver_api}, {"hazard", hazard}, {"refused", refused},
        {"forked", forked}, {"forked_first", forked_first}, {"orphan", orphan},
        {"killed_in_a_launch", killed_in_a_launch},
        {"beside0", [] { return beside(0); }}, {"beside1", [] { return beside(1); }},
        {"beside2", [] { return beside(2); }}, {"beside3", [] { return beside(3); }},
        {"beside4", [] { return beside(4); }}, {"beside5", [] { return beside(5); }},
        {"beside6", [] { return beside(6); }}, {"beside7", [] { return beside(7); }},
        {"beside8", [] { return beside(8); }}, {"beside9", [] { return beside(9); }},
        {"copied0", [] { return copied(0); }}, {"copied1", [] { return copied(1); }},
        {"copied2", [] { return copied(2); }}, {"copied3", [] { return copied(3); }},
        {"copied4", [] { return copied(4); }}, {"copied5", [] { return copied(5); }},
        {"copied6", [] { return copied(6); }}, {"copied7", [] { return copied(7); }},
        {"copied8", [] { return copied(8); }}, {"copied9", [] { return copied(9); }},
        {"captured0", [] { return captured(0); }}, {"captured1", [] { return captured(1); }},
        {"captured2", [] { return captured(2); }}, {"uncapturable", uncapturable}, {"pools", pools},
        {"nodes", [] { return nodes(true); }}, {"nodes_beside", [] { return nodes(false); }},
        {"trap", [] { return faults(0); }}, {"misaligned", [] { return faults(1); }},
        {"illegal", [] { return faults(2); }}, {"endless", [] { return faults(3); }},
        {"exit", [] { vector_add(); std::exit(5); return 0; }},
        {"abort", [] { vector_add(); std::abort(); return 0; }},
        {"crash", [] { vector_add(); raise(SIGSEGV); return 0; }},
        {"nothing", [] { std::printf("nothing\n"); return 0; }},
    };
    for (const auto& one : cases)
        if (!std::strcmp(one.name, name)) return one.run();
    std::printf("no case %s\n", name);
    return 2;
}
