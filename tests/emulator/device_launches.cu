// Kernels that launch others, compiled with -rdc=true.
#include <cstdint>
#include <cstdio>

// Sorting by parts: a grid of one thread splits its range and launches one for each half, in a stream of its own.
extern "C" __global__ void sort_range(int* values, int left, int right, int depth) {
    if (right - left < 8 || depth == 20) {
        for (int i = left + 1; i <= right; ++i)
            for (int k = i; k > left && values[k - 1] > values[k]; --k) {
                const int kept = values[k];
                values[k] = values[k - 1];
                values[k - 1] = kept;
            }
        return;
    }
    const int pivot = values[(left + right) / 2];
    int low = left, high = right;
    while (low <= high) {
        while (values[low] < pivot) ++low;
        while (values[high] > pivot) --high;
        if (low > high) break;
        const int kept = values[low];
        values[low++] = values[high];
        values[high--] = kept;
    }
    cudaStream_t stream;
    if (left < high) {
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        sort_range<<<1, 1, 0, stream>>>(values, left, high, depth + 1);
        cudaStreamDestroy(stream);
    }
    if (low < right) sort_range<<<1, 1, 0, cudaStreamFireAndForget>>>(values, low, right, depth + 1);
}

// Of each square of an image: all of it where its border has one value, else its quarters.
__device__ int escapes(int x, int y, int size) {
    const float re = 3.0f * x / size - 2.25f, im = 3.0f * y / size - 1.5f;
    float a = 0, b = 0;
    for (int n = 0; n < 32; ++n) {
        const float next = a * a - b * b + re;
        b = 2 * a * b + im;
        a = next;
        if (a * a + b * b > 4) return n;
    }
    return 32;
}

extern "C" __global__ void fill_square(int* image, int size, int x, int y, int value) {
    image[(y + threadIdx.y) * size + x + threadIdx.x] = value;
}

extern "C" __global__ void squares(int* image, int size, int x, int y, int side) {
    x += blockIdx.x * side;
    y += blockIdx.y * side;
    const int t = threadIdx.x;
    if (side <= 4) {
        if (t < side * side) image[(y + t / side) * size + x + t % side] = escapes(x + t % side, y + t / side, size);
        return;
    }
    const int at = t % side, edge = t / side;
    const int px = edge == 0 || edge == 1 ? x + at : edge == 2 ? x : x + side - 1;
    const int py = edge == 0 ? y : edge == 1 ? y + side - 1 : y + at;
    const int first = escapes(x, y, size);
    const bool same = t >= 4 * side || escapes(px, py, size) == first;
    if (!__syncthreads_and(same)) {
        if (t == 0) squares<<<dim3(2, 2), 128>>>(image, size, x, y, side / 2);
    } else if (t == 0) {
        fill_square<<<1, dim3(side, side)>>>(image, size, x, y, first);
    }
}

// Arguments of every size, in the order of the ABI.
struct Mixed {
    char a;
    double b;
    short c[3];
};
struct alignas(16) Wide {
    int x, y, z, w;
};

extern "C" __global__ void take(double* out, char a, Mixed m, short b, Wide wide, float c, bool d) {
    extern __shared__ char dynamic[];
    unsigned bytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    dynamic[threadIdx.x + 32 * threadIdx.y] = a;
    const double values[] = {(double)a,         (double)m.a,        m.b,
                             (double)m.c[0],    (double)m.c[2],     (double)b,
                             (double)wide.x,    (double)wide.w,     (double)c,
                             (double)d,         (double)gridDim.x,  (double)gridDim.y,
                             (double)gridDim.z, (double)blockDim.x, (double)blockDim.y,
                             (double)bytes};
    if (!threadIdx.x && !threadIdx.y && !blockIdx.x && !blockIdx.y && !blockIdx.z)
        for (int n = 0; n < 16; ++n) out[n] = values[n];
}

extern "C" __global__ void give(double* out) {
    Mixed m{-3, 2.5, {7, 8, -9}};
    take<<<dim3(2, 3, 4), dim3(32, 2), 100>>>(out, 5, m, -6, Wide{1, 2, 3, 4}, 0.5f, true);
}

// What launches give that cannot be.
extern "C" __global__ void __launch_bounds__(64) small(int* out) { out[0] = 1; }

extern "C" __global__ void wrong_launches(int* codes, int* out, int* zero) {
    const int t = threadIdx.x, none = *zero;
    if (t == 0) small<<<none, 32>>>(out);
    if (t == 1) small<<<1, none>>>(out);
    if (t == 2) small<<<1, 2048 + none>>>(out);
    if (t == 3) small<<<1, 65 + none>>>(out);
    if (t == 4) small<<<1, dim3(1, 1, 65 + none)>>>(out);
    if (t == 5) small<<<dim3(1, 65536 + none), 1>>>(out);
    if (t == 6) small<<<1, 32, 300000>>>(out);
    if (t == 7) small<<<1, 32>>>(out);
    if (t == 8) small<<<1, 32, 0, (cudaStream_t)(0x5000 + (uint64_t)none)>>>(out);
    codes[3 * t] = cudaPeekAtLastError();
    codes[3 * t + 1] = cudaGetLastError();
    codes[3 * t + 2] = cudaGetLastError();
}

extern "C" __global__ void deep(int* reached, int* code, int left) {
    atomicAdd(reached, 1);
    if (left) deep<<<1, 1>>>(reached, code, left - 1);
    if (const int error = cudaGetLastError()) *code = error;
}

extern "C" __global__ void count(int* n) { atomicAdd(n, 1); }

extern "C" __global__ void many(int* n, int* failed) {
    for (int i = 0; i < 40; ++i) {
        count<<<1, 1>>>(n);
        if (cudaGetLastError()) atomicAdd(failed, 1);
    }
}

// Says where it is in a tree: its parent's digits and one of its own.
extern "C" __global__ void branch(int path, int left) {
    printf("%d ", path);
    for (int i = 1; left && i <= 2; ++i) branch<<<1, 1, 0, cudaStreamFireAndForget>>>(10 * path + i, left - 1);
}

extern "C" __global__ void without_end() {
    for (;;) count<<<1, 1>>>(nullptr);
}

extern "C" __global__ void with_dynamic(int* out) {
    extern __shared__ char dynamic[];
    unsigned bytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    dynamic[bytes - 1] = 1;
    *out = bytes;
}
extern "C" __global__ void launch_dynamic(int* out, int bytes, int* code) {
    with_dynamic<<<1, 1, bytes>>>(out);
    *code = cudaGetLastError();
}

// Each CTA of a pair gives what the other one has in its shared memory.
extern "C" __global__ void __cluster_dims__(2, 1, 1) in_pairs(int* out) {
    __shared__ int mine;
    unsigned rank, address;
    int got;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    mine = 10 * blockIdx.x;
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(address)
        : "r"((unsigned)__cvta_generic_to_shared(&mine)), "r"(rank ^ 1));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(got) : "r"(address) : "memory");
    out[blockIdx.x] = got;
    asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
}
extern "C" __global__ void launch_pairs(int* out, int blocks) { in_pairs<<<blocks, 1>>>(out); }

extern "C" __global__ void __cluster_dims__(16, 1, 1) in_sixteens(int* n) { atomicAdd(n, 1); }
extern "C" __global__ void launch_sixteens(int* n, int asked) {
    if (asked) in_sixteens<<<16, 1>>>(n);
}

// A loop by tail launches: longer than grids may nest.
extern "C" __global__ void again(int* values, int* steps, int left) {
    values[threadIdx.x] = 3 * values[threadIdx.x ^ 1] + 1;
    __syncthreads();
    if (threadIdx.x) return;
    count<<<1, 1>>>(steps);
    if (left) again<<<1, 32, 0, cudaStreamTailLaunch>>>(values, steps, left - 1);
}

// Tail launches come after all else, in their order.
extern "C" __global__ void append(int* list, int value) { list[++list[0]] = value; }

extern "C" __global__ void append_below(int* list, int value) {
    append<<<1, 1>>>(list, value);
    append<<<1, 1>>>(list, value + 1);
    append<<<1, 1, 0, cudaStreamTailLaunch>>>(list, value + 2);
}

extern "C" __global__ void in_order(int* list) {
    append<<<1, 1, 0, cudaStreamTailLaunch>>>(list, 30);
    append_below<<<1, 1, 0, cudaStreamTailLaunch>>>(list, 40);
    append<<<1, 1>>>(list, 10);
    append_below<<<1, 1>>>(list, 20);
    append<<<1, 1>>>(list, 23);
    append<<<1, 1, 0, cudaStreamTailLaunch>>>(list, 50);
}

// The implicit stream is one for all threads of a block, and another for those of another block.
extern "C" __global__ void from_threads(int* list) {
    if (threadIdx.x % 16 == 0) append<<<1, 1>>>(list, threadIdx.x);
}

// Two streams and an event between them.
extern "C" __global__ void by_event(int* list, int waits) {
    cudaStream_t one, two;
    cudaEvent_t event;
    cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    append<<<1, 1, 0, one>>>(list, 1);
    append<<<1, 1, 0, one>>>(list, 2);
    cudaEventRecord(event, one);
    if (waits) cudaStreamWaitEvent(two, event, 0);
    append<<<1, 1, 0, two>>>(list, 3);
    cudaEventDestroy(event);
    cudaStreamDestroy(one);
    cudaStreamDestroy(two);
}

// What the guide says of memory: a grid knows what the thread that has launched it had done and knew. `sum` is right
// where all threads write before the launch.
extern "C" __global__ void sum(const int* values, int* total) {
    int found = 0;
    for (int i = 0; i < 64; ++i) found += values[i];
    *total = found;
}

extern "C" __global__ void write_then_launch(int* values, int* total) {
    values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) sum<<<1, 1>>>(values, total);
}

extern "C" __global__ void write_beside_launch(int* values, int* total) {
    values[threadIdx.x] = threadIdx.x;
    if (threadIdx.x == 0) sum<<<1, 1>>>(values, total);
}

extern "C" __global__ void write_after_launch(int* values, int* total) {
    values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) sum<<<1, 1>>>(values, total);
    values[threadIdx.x] = 0;
}

extern "C" __global__ void read_after_launch(int* values, int* total) {
    values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum<<<1, 1>>>(values, total);
        total[1] = total[0];
    }
}

extern "C" __global__ void write_before_tail(int* values, int* total) {
    if (threadIdx.x == 0) sum<<<1, 1, 0, cudaStreamTailLaunch>>>(values, total);
    values[threadIdx.x] = threadIdx.x;
}

// Blocks of one grid, each of which launches behind its own part.
extern "C" __global__ void two_blocks(int* values, int* total) {
    values[32 * blockIdx.x + threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (blockIdx.x == 1 && threadIdx.x == 0) sum<<<1, 1>>>(values, total);
}

// Of two launches by the host: what the first leaves to a grid of its own, and how the second waits for it.
extern "C" __global__ void fill(int* values) { values[threadIdx.x] = threadIdx.x; }

extern "C" __global__ void fill_below(int* values) {
    asm volatile("griddepcontrol.launch_dependents;");
    if (threadIdx.x == 0) fill<<<1, 64>>>(values);
}

extern "C" __global__ void fill_then_tail(int* values, int* n, int triggers) {
    if (triggers) asm volatile("griddepcontrol.launch_dependents;");
    values[threadIdx.x] = threadIdx.x;
    if (threadIdx.x == 0) count<<<1, 1, 0, cudaStreamTailLaunch>>>(n);
}

extern "C" __global__ void sum_dependent(const int* values, int* total, int waits) {
    if (waits) asm volatile("griddepcontrol.wait;" ::: "memory");
    int found = 0;
    for (int i = 0; i < 64; ++i) found += values[i];
    *total = found;
}

// Copies and fills are work in a stream like any other.
extern "C" __global__ void copies(char* to, char* from, int n) {
    cudaMemsetAsync(to, 7, n, 0);
    cudaMemcpyAsync(to + 1, from, n - 2, cudaMemcpyDeviceToDevice, 0);
}

extern "C" __global__ void facts(int* out) {
    int n;
    size_t limit;
    cudaGetDevice(&n), out[0] = n;
    cudaGetDeviceCount(&n), out[1] = n;
    cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0), out[2] = n;
    cudaDeviceGetAttribute(&n, cudaDevAttrComputeCapabilityMajor, 0), out[3] = n;
    out[4] = cudaDeviceGetAttribute(&n, cudaDevAttrWarpSize, 1);
    cudaDeviceGetLimit(&limit, cudaLimitDevRuntimePendingLaunchCount), out[5] = (int)limit;
    cudaRuntimeGetVersion(&n), out[6] = n;
    int* memory;
    out[7] = cudaMalloc(&memory, 64);
    *memory = 12;
    out[8] = *memory;
    out[9] = cudaFree(memory);
    out[10] = cudaMalloc(&memory, 1 << 30);
    cudaEvent_t event;
    cudaStream_t stream;
    out[11] = cudaEventCreateWithFlags(&event, cudaEventDefault);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    out[12] = cudaEventRecord(event, cudaStreamTailLaunch);
    out[13] = cudaStreamWaitEvent(cudaStreamFireAndForget, event, 0);
    out[14] = cudaStreamCreateWithFlags(&stream, cudaStreamDefault);
    out[15] = cudaGetLastError();
    out[16] = cudaStreamCreateWithFlags(&stream, 2);
}

extern "C" __global__ void words() {
    deep<<<1, 2048>>>(nullptr, nullptr, 0);
    printf("%s: %s\n", cudaGetErrorName(cudaPeekAtLastError()), cudaGetErrorString(cudaGetLastError()));
}

// A fault below ends the launch.
extern "C" __global__ void trap_below(int* n) {
    count<<<1, 1>>>(n);
    asm volatile("trap;");
}
extern "C" __global__ void fault_below(int* n) {
    trap_below<<<1, 1>>>(n);
    count<<<1, 1>>>(n);
}
