// What the device runtime answers: a probe a line, its name and words. What no manual says is under open/.
#include <cstdint>
#include <cstdio>
#include <cstring>

constexpr int kWords = 64;
__device__ int answers[kWords];

__global__ void nothing() {}
__global__ void __launch_bounds__(64) at_most_64() {}
__global__ void with_dynamic() {
    extern __shared__ char memory[];
    asm volatile("" ::"r"((unsigned)memory[0]));
}
__global__ void __cluster_dims__(2, 1, 1) pairs(int* out) {
    unsigned n;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
    out[blockIdx.x] = n;
}

// Errors of launches that cannot be: peeked at, taken, and what is left.
__device__ void note(int at) {
    answers[at] = cudaPeekAtLastError();
    answers[at + 1] = cudaGetLastError();
    answers[at + 2] = cudaGetLastError();
}
__global__ void wrong_dimensions(int none) {
    nothing<<<none, 32>>>();
    note(0);
    nothing<<<1, none>>>();
    note(3);
    nothing<<<1, 1025 + none>>>();
    note(6);
    nothing<<<1, dim3(1, 1, 65 + none)>>>();
    note(9);
    nothing<<<dim3(1, 65536 + none), 1>>>();
    note(12);
    nothing<<<dim3(1, 1, 65536 + none), 1>>>();
    note(15);
}
__global__ void launch_bounds(int none) {
    at_most_64<<<1, 65 + none>>>();
    note(0);
}
__global__ void shared_memory(int none) {
    with_dynamic<<<1, 32, 300000 + none>>>();
    note(0);
    with_dynamic<<<1, 32, 49153 + none>>>();
    note(3);
}
__global__ void stream_handle(int none) {
    nothing<<<1, 32, 0, (cudaStream_t)(0x50000000ull + (uint64_t)none)>>>();
    note(0);
}
__global__ void errors_of_threads(int none) {
    if (threadIdx.x == 3) nothing<<<none, 1>>>();
    answers[threadIdx.x] = cudaGetLastError();
}

// How deep grids nest, and what the last launch gives.
__global__ void deep() {
    atomicAdd(&answers[0], 1);
    if (answers[0] > 60) return;
    deep<<<1, 1>>>();
    if (const int error = cudaGetLastError()) answers[1] = error;
}
__global__ void deep_by_tails(int left) {
    atomicAdd(&answers[0], 1);
    if (left) deep_by_tails<<<1, 1, 0, cudaStreamTailLaunch>>>(left - 1);
    if (const int error = cudaGetLastError()) answers[1] = error;
}

// What a launch beyond those that may wait gives.
__global__ void too_many() {
    for (int i = 0; i < 20000; ++i) {
        nothing<<<1, 1>>>();
        if (const int error = cudaGetLastError()) {
            answers[0] = error;
            break;
        }
    }
}

__device__ int list[kWords];
__global__ void append(int value) { list[++list[0]] = value; }
__global__ void append_below(int value) {
    append<<<1, 1>>>(value);
    append<<<1, 1>>>(value + 1);
    append<<<1, 1, 0, cudaStreamTailLaunch>>>(value + 2);
}
__global__ void in_order() {
    append<<<1, 1, 0, cudaStreamTailLaunch>>>(30);
    append_below<<<1, 1, 0, cudaStreamTailLaunch>>>(40);
    append<<<1, 1>>>(10);
    append_below<<<1, 1>>>(20);
    append<<<1, 1>>>(23);
    append<<<1, 1, 0, cudaStreamTailLaunch>>>(50);
}
__global__ void by_event() {
    cudaStream_t one, two;
    cudaEvent_t event;
    answers[0] = cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    answers[1] = cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking);
    answers[2] = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    append<<<1, 1, 0, one>>>(1);
    append<<<1, 1, 0, one>>>(2);
    answers[3] = cudaEventRecord(event, one);
    answers[4] = cudaStreamWaitEvent(two, event, 0);
    append<<<1, 1, 0, two>>>(3);
    answers[5] = cudaEventDestroy(event);
    answers[6] = cudaStreamDestroy(one);
    answers[7] = cudaStreamDestroy(two);
}
__global__ void named_streams() {
    cudaEvent_t event;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    answers[0] = cudaEventRecord(event, cudaStreamTailLaunch);
    answers[1] = cudaEventRecord(event, cudaStreamFireAndForget);
    answers[2] = cudaStreamWaitEvent(cudaStreamTailLaunch, event, 0);
    answers[3] = cudaStreamWaitEvent(cudaStreamFireAndForget, event, 0);
}
__global__ void flags() {
    cudaEvent_t event;
    cudaStream_t stream;
    answers[0] = cudaEventCreateWithFlags(&event, cudaEventDefault);
    answers[1] = cudaStreamCreateWithFlags(&stream, cudaStreamDefault);
    answers[2] = cudaGetLastError();
}
__global__ void device_facts() {
    int n = -1;
    size_t limit = 0;
    answers[0] = cudaGetDevice(&n), answers[1] = n;
    answers[2] = cudaDeviceGetAttribute(&n, cudaDevAttrWarpSize, 0), answers[3] = n;
    answers[4] = cudaDeviceGetAttribute(&n, cudaDevAttrMaxThreadsPerBlock, 0), answers[5] = n;
    answers[6] = cudaDeviceGetLimit(&limit, cudaLimitDevRuntimePendingLaunchCount), answers[7] = (int)limit;
}
__global__ void device_of_another_number() {
    int n = -1;
    answers[0] = cudaDeviceGetAttribute(&n, cudaDevAttrWarpSize, 77);
}
__global__ void memory_of_kernels() {
    int* memory = nullptr;
    answers[0] = cudaMalloc(&memory, 64);
    answers[1] = memory != nullptr;
    answers[2] = cudaFree(memory);
    answers[3] = cudaMalloc(&memory, 1ull << 40);
    answers[4] = cudaGetLastError();
}
__global__ void copies(char* to, char* from) {
    answers[0] = cudaMemsetAsync(to, 7, 100, 0);
    answers[1] = cudaMemcpyAsync(to + 1, from, 98, cudaMemcpyDeviceToDevice, 0);
}
__global__ void direction(char* to, char* from) {
    answers[0] = cudaMemcpyAsync(to, from, 10, cudaMemcpyHostToDevice, 0);
    answers[1] = cudaGetLastError();
}
__global__ void clusters(int* out) {
    pairs<<<2, 32>>>(out);
    answers[0] = cudaGetLastError();
}
__device__ char words[256];
__global__ void error_words(int error) {
    const char* const texts[] = {cudaGetErrorName((cudaError_t)error), cudaGetErrorString((cudaError_t)error)};
    int at = 0;
    for (const char* text : texts)
        for (int i = 0; i == 0 || text[i - 1]; ++i) words[at++] = text[i];
}

template <class Start>
void probe(const char* name, int words_of_it, Start start) {
    int zeros[kWords] = {}, got[kWords];
    cudaMemcpyToSymbol(answers, zeros, sizeof zeros);
    start();
    const cudaError_t error = cudaDeviceSynchronize();
    std::printf("%s", name);
    if (error != cudaSuccess || cudaMemcpyFromSymbol(got, answers, sizeof got) != cudaSuccess)
        std::printf(" dead%04x", (unsigned)error);
    else
        for (int i = 0; i < words_of_it; ++i) std::printf(" %x", (unsigned)got[i]);
    std::printf("\n");
    if (cudaGetLastError() != cudaSuccess) cudaDeviceReset();
}

template <class Start>
void probe_list(const char* name, int n, Start start) {
    int zeros[kWords] = {}, got[kWords] = {};
    cudaMemcpyToSymbol(list, zeros, sizeof zeros);
    start();
    cudaDeviceSynchronize();
    cudaMemcpyFromSymbol(got, list, sizeof got);
    std::printf("%s", name);
    for (int i = 1; i <= n; ++i) std::printf(" %x", (unsigned)got[i]);
    std::printf("\n");
}

int main() {
    char* bytes;
    int* pair;
    cudaMalloc(&bytes, 256);
    cudaMemset(bytes, 1, 256);
    cudaMalloc(&pair, 8);
    cudaMemset(pair, 0, 8);
    probe_list("order/tails", 10, [] { in_order<<<1, 1>>>(); });
    probe_list("order/event", 3, [] { by_event<<<1, 1>>>(); });
    probe("calls/streams-and-events", 8, [] { by_event<<<1, 1>>>(); });
    probe("calls/named-streams", 4, [] { named_streams<<<1, 1>>>(); });
    probe("calls/device", 8, [] { device_facts<<<1, 1>>>(); });
    probe("calls/memory", 3, [] { memory_of_kernels<<<1, 1>>>(); });
    probe("calls/copies", 2, [=] { copies<<<1, 1>>>(bytes, bytes + 128); });
    probe("errors/of-threads", 8, [] { errors_of_threads<<<1, 8>>>(0); });
    probe("errors/depth", 2, [] { deep<<<1, 1>>>(); });
    probe("open/errors/dimensions", 18, [] { wrong_dimensions<<<1, 1>>>(0); });
    probe("open/errors/launch-bounds", 3, [] { launch_bounds<<<1, 1>>>(0); });
    probe("open/errors/shared-memory", 6, [] { shared_memory<<<1, 1>>>(0); });
    probe("open/errors/flags", 3, [] { flags<<<1, 1>>>(); });
    probe("open/errors/memory", 5, [] { memory_of_kernels<<<1, 1>>>(); });
    probe("open/errors/other-device", 1, [] { device_of_another_number<<<1, 1>>>(); });
    probe("open/errors/direction", 2, [=] { direction<<<1, 1>>>(bytes, bytes + 128); });
    probe("open/depth/tails", 2, [] { deep_by_tails<<<1, 1>>>(60); });
    probe("errors/pending", 1, [] { too_many<<<1, 1>>>(); });
    for (const int error : {0, 1, 2, 9, 21, 65, 69, 98, 101, 400, 701}) {
        char name[64], got[256] = {};
        cudaMemcpyToSymbol(words, got, sizeof got);
        error_words<<<1, 1>>>(error);
        cudaMemcpyFromSymbol(got, words, sizeof got);
        std::snprintf(name, sizeof name, "open/words/%d", error);
        std::printf("%s", name);
        for (int i = 0; i < 128; i += 4) {
            unsigned word;
            std::memcpy(&word, got + i, 4);
            std::printf(" %x", word);
        }
        std::printf("\n");
    }
    std::fflush(stdout);
    // Last, for the context may not survive them.
    probe("open/clusters", 1, [=] { clusters<<<1, 1>>>(pair); });
    int ranks[2] = {};
    cudaMemcpy(ranks, pair, 8, cudaMemcpyDeviceToHost);
    std::printf("open/clusters/ranks %x %x\n", (unsigned)ranks[0], (unsigned)ranks[1]);
    std::fflush(stdout);
    probe("open/errors/stream-handle", 3, [] { stream_handle<<<1, 1>>>(0); });
}
