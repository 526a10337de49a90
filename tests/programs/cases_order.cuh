// The cases of cases.cu that are of what orders launches: streams, events, captures and graphs.
#pragma once

// Two launches that use one array, and what is between them.
static int beside(int how) {
    int *data, *other;
    cudaStream_t first, second;
    cudaEvent_t event;
    CHECK(cudaMalloc(&data, 256));
    CHECK(cudaMalloc(&other, 256));
    CHECK(cudaStreamCreateWithFlags(&first, how == 5 ? cudaStreamNonBlocking : cudaStreamDefault));
    CHECK(cudaStreamCreate(&second));
    CHECK(cudaEventCreate(&event));
    fill_with<<<2, 32, 0, first>>>(data, 1);
    if (how == 1) {
        CHECK(cudaEventRecord(event, first));
        CHECK(cudaStreamWaitEvent(second, event));
    } else if (how == 2) {
        CHECK(cudaStreamSynchronize(first));
    } else if (how == 3) {
        CHECK(cudaEventRecord(event, second));  // of the wrong stream
        CHECK(cudaStreamWaitEvent(second, event));
    } else if (how == 4 || how == 5) {
        fill_with<<<2, 32>>>(other, 2);  // the default stream waits for `first`, unless that is a non-blocking one
    } else if (how == 6) {
        CHECK(cudaStreamSynchronize(second));
    } else if (how == 7) {
        CHECK(cudaMemcpyAsync(other, data, 256, cudaMemcpyDeviceToDevice, first));
    } else if (how == 8) {
        int host[64];
        CHECK(cudaMemcpyAsync(host, data, 256, cudaMemcpyDeviceToHost, first));
    }
    fill_with<<<2, 32, 0, how == 9 ? first : second>>>(data, 3);
    CHECK(cudaDeviceSynchronize());
    fill_with<<<2, 32, 0, first>>>(data, 4);
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaDeviceSynchronize());
    return 0;
}

// A launch in a stream that the default stream does not wait for, and a copy or the like of the same array.
static int copied(int how) {
    int *data, *other, host[64];
    cudaStream_t first, second;
    cudaEvent_t event;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&event));
    CHECK(cudaMallocAsync(&data, 256, first));
    CHECK(cudaMalloc(&other, 256));
    if (how == 6 || how == 7) CHECK(cudaMemset(data, 0, 256));
    if (how == 7) CHECK(cudaStreamSynchronize(0));
    fill_with<<<2, 32, 0, first>>>(data, 1);
    CHECK(cudaEventRecord(event, first));
    if (how == 1) CHECK(cudaStreamWaitEvent(second, event));
    if (how == 0 || how == 1) CHECK(cudaMemcpyAsync(other, data, 256, cudaMemcpyDeviceToDevice, second));
    if (how == 3) CHECK(cudaEventSynchronize(event));
    if (how == 2 || how == 3) CHECK(cudaMemcpy(host, data, 256, cudaMemcpyDeviceToHost));
    if (how == 4 || how == 5) CHECK(cudaFreeAsync(data, how == 4 ? second : first));
    if (how == 8 || how == 9) {
        for (int& h : host) h = 5;
        CHECK(cudaMemcpyAsync(other, host, 256, cudaMemcpyHostToDevice, second));
        fill_with<<<2, 32, 0, first>>>(other, 2);  // of pageable memory: the copy is over
        CHECK(cudaMemcpyAsync(other, other + 32, 128, cudaMemcpyDeviceToDevice, how == 8 ? second : first));
    }
    CHECK(cudaDeviceSynchronize());
    return 0;
}

// What two branches of a capture do to one array: 0 both write it, 1 they are joined between, 2 an event is missing, so
// that the second is not captured.
static int captured(int how) {
    int *data, *other, host[64];
    cudaStream_t first, second;
    cudaEvent_t fork, join;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec;
    CHECK(cudaMalloc(&data, 256));
    CHECK(cudaMalloc(&other, 256));
    CHECK(cudaStreamCreate(&first));
    CHECK(cudaStreamCreate(&second));
    CHECK(cudaEventCreate(&fork));
    CHECK(cudaEventCreate(&join));
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemsetAsync(data, 0, 256, first));
    CHECK(cudaEventRecord(fork, first));
    CHECK(cudaStreamWaitEvent(second, fork));
    int value = 1;
    fill_with<<<2, 32, 0, second>>>(data, value);
    value = 7;  // the node has its own
    CHECK(cudaEventRecord(join, second));
    if (how == 1) CHECK(cudaStreamWaitEvent(first, join));
    fill_with<<<1, 32, 0, first>>>(data, 2);
    fill_with<<<2, 32, 0, first>>>(other, 3);
    if (how == 0) CHECK(cudaStreamWaitEvent(first, join));
    tell("ended", cudaStreamEndCapture(first, &graph));
    if (how == 2) return graph != nullptr;
    CHECK(cudaMemset(data, 9, 256));
    CHECK(cudaMemcpy(host, data, 256, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphInstantiate(&exec, graph));
    CHECK(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, i == 1 ? second : first));
    CHECK(cudaDeviceSynchronize());
    std::printf("%x before, ", host[0]);
    CHECK(cudaMemcpy(host, data, 256, cudaMemcpyDeviceToHost));
    std::printf("%d %d after\n", host[0], host[63]);
    CHECK(cudaGraphExecDestroy(exec));
    return 0;
}

__global__ void append(int* log, int digit) { log[0] = 10 * log[0] + digit; }

// A graph of nodes, with a child graph, cloned and updated. Without `edge` two of its kernels may run side by side.
static int nodes(bool edge) {
    int *log, told = 0, digit = 1, kind = -1;
    size_t count = 0;
    cudaGraph_t graph, child, twin;
    cudaGraphNode_t fill, one, two, three, nested, copy, host, inner[2];
    cudaGraphExec_t exec;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&log, 4));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&child, 0));
    cudaMemsetParams zero{log, 0, 0, 4, 1, 1};
    void* arguments[] = {&log, &digit};
    cudaKernelNodeParams kernel{reinterpret_cast<void*>(append), dim3(1), dim3(1), 0, arguments, nullptr};
    CHECK(cudaGraphAddKernelNode(&three, graph, nullptr, 0, &kernel));  // before what it will wait for
    CHECK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &zero));
    digit = 2;
    CHECK(cudaGraphAddKernelNode(&one, graph, &fill, 1, &kernel));
    digit = 3;
    CHECK(cudaGraphAddKernelNode(&two, graph, edge ? &one : &fill, 1, &kernel));
    digit = 4;
    CHECK(cudaGraphAddKernelNode(&inner[0], child, nullptr, 0, &kernel));
    CHECK(cudaGraphAddEmptyNode(&inner[1], child, inner, 1));
    const cudaGraphNode_t before[] = {one, two};
    CHECK(cudaGraphAddChildGraphNode(&nested, graph, before, 2, child));
    CHECK(cudaGraphDestroy(child));
    CHECK(cudaGraphAddDependencies(graph, &nested, &three, nullptr, 1));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &three, 1, &told, log, 4, cudaMemcpyDeviceToHost));
    cudaHostNodeParams function{[](void* at) { std::printf("%d, ", *static_cast<int*>(at)); }, &told};
    CHECK(cudaGraphAddHostNode(&host, graph, &copy, 1, &function));
    CHECK(cudaGraphGetNodes(graph, nullptr, &count));
    CHECK(cudaGraphInstantiate(&exec, graph));
    CHECK(cudaGraphLaunch(exec, stream));
    digit = 9;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, one, &kernel));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphClone(&twin, graph));
    cudaGraphExecUpdateResultInfo updated;
    CHECK(cudaGraphExecUpdate(exec, twin, &updated));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("%zu nodes\n", count);
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(nested, &type));
    kind = type;
    CHECK(cudaGraphAddEmptyNode(&inner[0], twin, nullptr, 0));
    const cudaError_t other = cudaGraphExecUpdate(exec, twin, &updated);
    std::printf("kind %d; another topology: %s, %d\n", kind, cudaGetErrorName(other), updated.result);
    CHECK(cudaGraphAddDependencies(graph, &host, &fill, nullptr, 1));
    tell("a circle", cudaGraphInstantiate(&exec, graph));
    return 0;
}

// What a capture does not allow.
static int uncapturable() {
    cudaStream_t stream, other;
    cudaEvent_t event;
    cudaGraph_t graph;
    cudaStreamCaptureStatus state;
    int* data;
    CHECK(cudaMalloc(&data, 256));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreate(&other));
    CHECK(cudaEventCreate(&event));
    tell("the default stream", cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal));
    tell("none begun", cudaStreamEndCapture(stream, &graph));
    const auto during = [&](const char* what, cudaStreamCaptureMode mode, auto call) {
        CHECK(cudaStreamBeginCapture(stream, mode));
        tell(what, call());
        CHECK(cudaStreamIsCapturing(stream, &state));
        const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
        std::printf("  state %d, ended %d\n", state, ended);
        if (!ended) CHECK(cudaGraphDestroy(graph));
        cudaGetLastError();
    };
    const auto global = cudaStreamCaptureModeGlobal, relaxed = cudaStreamCaptureModeRelaxed;
    int* more;
    during("allocated", global, [&] { return cudaMalloc(&more, 4); });
    during("allocated, relaxed", relaxed, [&] { return cudaMalloc(&more, 4); });
    during("waited for", relaxed, [&] { return cudaStreamSynchronize(stream); });
    during("the legacy stream", relaxed, [&] { fill_with<<<1, 32>>>(data, 1); return cudaGetLastError(); });
    during("an event from outside", global, [&] { return cudaEventRecord(event, other), cudaStreamWaitEvent(stream, event); });
    during("its event", global, [&] { return cudaEventRecord(event, stream), cudaEventQuery(event); });
    during("an allocation in it", global, [&] { return cudaMallocAsync(&more, 4, stream); });
    return 0;
}
