// Mistakes that somebody has reported in a public tracker, in kernels of our own: `./reports NAME`, and `NAME right`
// for the twin that is. docs/reference/reports.md has what the emulator says of each.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(call)                                                            \
    do {                                                                       \
        const cudaError_t status = call;                                       \
        if (status) return std::printf("%s\n", cudaGetErrorString(status)), 1; \
    } while (0)

// ggml-org/llama.cpp#13469: a barrier that some warps pass and others do not.
__global__ void barrier_of_some(const float* in, float* out, bool right) {
    __shared__ float tile[128];
    const int t = threadIdx.x;
    for (int k = 0; k < 3; ++k) {
        tile[t] = in[t] + k;
        if (right || t < 64) __syncthreads();
        out[t] += tile[127 - t];
        __syncthreads();
    }
}

// ggml-org/llama.cpp#13294: rows are found by one warp, and read by all.
__global__ void rows_of_an_expert(const float* in, float* out, bool right) {
    __shared__ int ids[64];
    const int t = threadIdx.x;
    if (t < 32)
        for (int k = t; k < 64; k += 32) ids[k] = 63 - k;
    if (right) __syncthreads();
    out[t] = in[ids[t % 64]];
}

// ikawrakow/ik_llama.cpp#1649: what the end of a turn reads, the next turn overwrites.
__global__ void delta_net(const float* in, float* out, bool right) {
    __shared__ float key[128];
    const int t = threadIdx.x;
    float state = 0;
    for (int token = 0; token < 4; ++token) {
        key[t] = in[t] * token;
        __syncthreads();
        float sum = 0;
        for (int k = 0; k < 128; ++k) sum += key[k];
        state += sum * key[(t + 1) % 128];
        if (right) __syncthreads();
    }
    out[t] = state;
}

// ggml-org/llama.cpp#23364: the same of two arrays that a few threads fill.
__global__ void ssm_scan(const float* in, float* out, bool right) {
    __shared__ float b[16], c[16];
    const int t = threadIdx.x;
    float sum = 0;
    for (int step = 0; step < 3; ++step) {
        if (t < 16) b[t] = in[t] + step;
        if (t >= 64 && t < 80) c[t - 64] = in[t] - step;
        __syncthreads();
        for (int k = 0; k < 16; ++k) sum += b[k] * c[k];
        if (right) __syncthreads();
    }
    out[t] = sum;
}

// ikawrakow/ik_llama.cpp#2502: lanes of a warp write a list, and others of the same warp read it.
__global__ void ids_helper(const float* in, float* out, bool right) {
    __shared__ int list[32];
    const int t = threadIdx.x;
    const unsigned hit = __ballot_sync(~0u, in[t] > 3);
    if (in[t] > 3) list[__popc(hit & ((1u << t) - 1))] = t;
    if (right) __syncwarp();
    if (t < __popc(hit)) out[t] = list[t];
}

// ggml-org/llama.cpp#13742: each warp decides by shared values to leave out a turn, whose end overwrites them.
__global__ void masked_turns(const float* in, float* out, bool right) {
    __shared__ float mask[64];
    const int t = threadIdx.x;
    float sum = 0;
    for (int turn = 0; turn < 4; ++turn) {
        if (t < 64) mask[t] = turn == 1 ? 0 : in[t];
        __syncthreads();
        bool skip = true;
        for (int k = 0; k < 64; ++k) skip = skip && mask[k] == 0;
        if (right) __syncthreads();
        if (skip) continue;
        sum += mask[t % 64] * turn;
        __syncthreads();
    }
    out[t] = sum;
}

// ggml-org/llama.cpp#27955: the two branches have a barrier each.
__global__ void barrier_each(const float* in, float* out, bool right) {
    __shared__ float tile[128];
    const int t = threadIdx.x;
    tile[t] = in[t];
    if (right)
        __syncthreads();
    else if (t % 2)
        __syncthreads();
    else
        __syncthreads();
    out[t] = tile[127 - t];
}

// ggml-org/llama.cpp#18448: the carry of a scan is read by all while the last thread writes that of the next piece.
__global__ void scan_in_pieces(const float* in, float* out, bool right) {
    __shared__ float warps[4], carry;
    const int t = threadIdx.x;
    if (t == 0) carry = 0;
    __syncthreads();
    for (int piece = 0; piece < 3; ++piece) {
        float x = in[t];
        for (int d = 1; d < 32; d *= 2) {
            const float y = __shfl_up_sync(~0u, x, d);
            if (t % 32 >= d) x += y;
        }
        if (t % 32 == 31) warps[t / 32] = x;
        __syncthreads();
        for (int w = 0; w < t / 32; ++w) x += warps[w];
        out[t + 128 * piece] = x + carry;
        if (right) __syncthreads();
        if (t == 127) carry += x;
        __syncthreads();
    }
}

// NVIDIA/cuml#6578: one thread reduces while the others begin the next turn.
__global__ void block_gemv(const float* in, float* out, bool right) {
    __shared__ float part[128];
    const int t = threadIdx.x;
    for (int row = 0; row < 3; ++row) {
        part[t] = in[t] * row;
        __syncthreads();
        if (t == 0) {
            float sum = 0;
            for (int k = 0; k < 128; ++k) sum += part[k];
            out[row] = sum;
        }
        if (right) __syncthreads();
    }
}

// NVIDIA/Fuser#678: idle lanes clear what a working one has yet to store.
__global__ void idle_lanes(const float* in, float* out, bool right) {
    __shared__ float sum;
    const int t = threadIdx.x;
    for (int k = 0; k < 2; ++k) {
        if (t == 32) sum = 0;
        __syncthreads();
        if (t < 4) atomicAdd(&sum, in[t]);
        __syncthreads();
        if (t == 0) out[k] = sum;
        if (right) __syncthreads();
    }
}

__global__ void scale(float* x) { x[threadIdx.x] *= 2; }

// supranational/sppark#81: memory of one stream, freed in the legacy default stream.
static int freed_in_default(bool right) {
    float* x;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocAsync(&x, 512, stream));
    CHECK(cudaMemsetAsync(x, 0, 512, stream));
    scale<<<1, 128, 0, stream>>>(x);
    CHECK(cudaFreeAsync(x, right ? stream : nullptr));
    CHECK(cudaDeviceSynchronize());
    return 0;
}

// meta-pytorch/torchrec#4231: a buffer is used again while a side stream still copies from it.
static int stashed(bool right) {
    float *x, *pinned;
    cudaStream_t compute, side;
    cudaEvent_t ready, copied;
    CHECK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&ready));
    CHECK(cudaEventCreate(&copied));
    CHECK(cudaMalloc(&x, 512));
    CHECK(cudaMallocHost(&pinned, 512));
    CHECK(cudaMemsetAsync(x, 0, 512, compute));
    scale<<<1, 128, 0, compute>>>(x);
    CHECK(cudaEventRecord(ready, compute));
    CHECK(cudaStreamWaitEvent(side, ready));
    CHECK(cudaMemcpyAsync(pinned, x, 512, cudaMemcpyDeviceToHost, side));
    CHECK(cudaEventRecord(copied, side));
    if (right) CHECK(cudaStreamWaitEvent(compute, copied));
    scale<<<1, 128, 0, compute>>>(x);
    CHECK(cudaDeviceSynchronize());
    return 0;
}

struct Report {
    const char* name;
    void (*kernel)(const float*, float*, bool);
    int threads;
    int (*program)(bool);
};

int main(int argc, char** argv) {
    const Report all[] = {
        {"barrier_of_some", barrier_of_some, 128, nullptr},
        {"rows_of_an_expert", rows_of_an_expert, 128, nullptr},
        {"delta_net", delta_net, 128, nullptr},
        {"ssm_scan", ssm_scan, 128, nullptr},
        {"ids_helper", ids_helper, 32, nullptr},
        {"masked_turns", masked_turns, 128, nullptr},
        {"barrier_each", barrier_each, 128, nullptr},
        {"scan_in_pieces", scan_in_pieces, 128, nullptr},
        {"block_gemv", block_gemv, 128, nullptr},
        {"idle_lanes", idle_lanes, 64, nullptr},
        {"freed_in_default", nullptr, 0, freed_in_default},
        {"stashed", nullptr, 0, stashed},
    };
    const bool right = argc > 2;
    for (const Report& r : all) {
        if (argc < 2 || std::strcmp(argv[1], r.name) != 0) continue;
        if (r.program) return r.program(right);
        float host[512], *in, *out;
        for (int k = 0; k < 512; ++k) host[k] = static_cast<float>(k % 7);
        CHECK(cudaMalloc(&in, sizeof host));
        CHECK(cudaMalloc(&out, sizeof host));
        CHECK(cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice));
        CHECK(cudaMemset(out, 0, sizeof host));
        r.kernel<<<1, r.threads>>>(in, out, right);
        CHECK(cudaDeviceSynchronize());
        return 0;
    }
    return 2;
}
