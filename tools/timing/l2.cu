// How many bytes a cycle a GPU's SMs get from L2, when `sharing` CTAs read the same bytes at the same time:
//   nvcc -arch=sm_90a -o l2 l2.cu && ./l2
// One CTA an SM; one of its threads keeps a ring of bulk copies under way. A group of CTAs reads `region` bytes of its
// own again and again, from the beginning. Cycles are the SM's, from clock64, of the slowest CTA; a row a measurement,
// as CSV.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int kStages = 8;
constexpr unsigned kChunk = 16384;

__device__ void wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{ .reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again; }" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

__global__ void read(const char* data, size_t region, int sharing, int chunks, bool apart, long long* cycles) {
    extern __shared__ __align__(128) char ring[];
    __shared__ __align__(8) uint64_t barriers[kStages];
    if (threadIdx.x) return;
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(ring));
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barriers));
    for (int s = 0; s < kStages; ++s)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at + 8 * s) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    const int groups = (gridDim.x + sharing - 1) / sharing;
    const int group = apart ? blockIdx.x % groups : blockIdx.x / sharing;
    const char* from = data + group * region;
    const int round = static_cast<int>(region / kChunk);
    const long long begin = clock64();
    for (int n = 0; n < chunks + kStages; ++n) {
        const unsigned stage = n % kStages;
        if (n >= kStages) wait(at + 8 * stage, (n / kStages - 1) & 1);
        if (n >= chunks) continue;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at + 8 * stage), "r"(kChunk)
                     : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         to + stage * kChunk),
                     "l"(from + size_t(n % round) * kChunk), "r"(kChunk), "r"(at + 8 * stage)
                     : "memory");
    }
    cycles[blockIdx.x] = clock64() - begin;
}

void need(cudaError_t code) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "l2: %s\n", cudaGetErrorString(code));
    std::exit(1);
}

int main() {
    int sms;
    need(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    constexpr size_t kBytes = size_t(256) << 20;
    char* data;
    long long* cycles;
    need(cudaMalloc(&data, kBytes));
    need(cudaMemset(data, 1, kBytes));
    need(cudaMallocManaged(&cycles, sizeof(long long) * sms));
    need(cudaFuncSetAttribute(read, cudaFuncAttributeMaxDynamicSharedMemorySize, kStages * kChunk));
    cudaEvent_t begin, end;
    need(cudaEventCreate(&begin));
    need(cudaEventCreate(&end));
    std::printf("ctas,sharing,neighbours,footprint_mib,bytes_a_cycle,bytes_a_cycle_and_sm,tb_a_second\n");
    constexpr int kChunks = 8192;
    for (int ctas : {1, 2, 16, 66, sms})
        for (int sharing : {1, 2, 4, 8, 16, 33, 66, 132})
            for (bool apart : {false, true})
                for (size_t footprint : {size_t(2) << 20, size_t(16) << 20, size_t(128) << 20}) {
                    const int groups = (ctas + sharing - 1) / sharing;
                    const size_t region = footprint / groups / kChunk * kChunk;
                    if (sharing > ctas || (ctas < sms && sharing > 1) || !region) continue;
                    std::vector<double> rates, seconds;
                    for (int turn = 0; turn < 5; ++turn) {
                        need(cudaEventRecord(begin));
                        read<<<ctas, 32, kStages * kChunk>>>(data, region, sharing, kChunks, apart, cycles);
                        need(cudaEventRecord(end));
                        need(cudaDeviceSynchronize());
                        float milliseconds;
                        need(cudaEventElapsedTime(&milliseconds, begin, end));
                        const double all = double(kChunks) * kChunk * ctas;
                        rates.push_back(all / *std::max_element(cycles, cycles + ctas));
                        seconds.push_back(all / milliseconds / 1e9);
                    }
                    std::sort(rates.begin(), rates.end());
                    std::sort(seconds.begin(), seconds.end());
                    std::printf("%d,%d,%d,%zu,%.0f,%.1f,%.2f\n", ctas, sharing, !apart, footprint >> 20, rates[2],
                                rates[2] / ctas, seconds[2]);
                }
}
