// The capture of streams (CUDA C++ programming guide, CUDA graphs): a stream's next node needs what the stream's last
// one was, and what the events were recorded behind that it has waited for.
#include "process.hpp"

namespace fmha {

thread_local int capture_mode = 0;

namespace {

enum Mode { kGlobal, kThreadLocal, kRelaxed };

Status broken(Captures::Capture& capture, Status status) {
    capture.broken = true;
    return status;
}

// Everything that comes before these nodes, and they.
std::set<Node*> with_all_before(const std::set<Node*>& nodes) {
    std::set<Node*> found;
    std::vector<Node*> left(nodes.begin(), nodes.end());
    while (!left.empty()) {
        Node* node = left.back();
        left.pop_back();
        if (found.insert(node).second) left.insert(left.end(), node->needs.begin(), node->needs.end());
    }
    return found;
}

}  // namespace

Captures::Capture* Captures::of(const void* stream) {
    for (const auto& c : active_)
        if (c->streams.contains(stream)) return c.get();
    return nullptr;
}

Captures::Capture* Captures::holder_of(const void* event) {
    for (const auto& c : active_)
        if (c->events.contains(event)) return c.get();
    return nullptr;
}

Status Captures::begin(const void* stream, int mode, Graph* into, std::set<Node*> needs) {
    if (mode < kGlobal || mode > kRelaxed) return kInvalidValue;
    if (stream_of(stream).id == StreamOrder::kLegacy) return kCaptureUnsupported;
    if (of(stream)) return kIllegalState;
    auto capture = std::make_unique<Capture>(Capture{stream, ++made_, mode, std::this_thread::get_id(), into});
    if (!into) {
        capture->own = std::make_unique<Graph>();
        capture->graph = capture->own.get();
    }
    capture->streams[stream] = std::move(needs);
    active_.push_back(std::move(capture));
    return kSuccess;
}

Status Captures::end(const void* stream, Graph*& out) {
    Capture* c = of(stream);
    if (!c) return kIllegalState;
    if (c->origin != stream) return broken(*c, kCaptureUnmatched);
    if (c->mode != kRelaxed && c->begun_by != std::this_thread::get_id()) return broken(*c, kCaptureWrongThread);
    Status status = c->broken ? kCaptureInvalidated : kSuccess;
    const std::set<Node*> joined = with_all_before(c->streams[stream]);
    for (const auto& [other, needs] : c->streams)
        if (!status && !std::ranges::includes(joined, needs)) status = kCaptureUnjoined;
    if (!status) out = c->own ? c->own.release() : c->graph;
    std::erase_if(active_, [&](const auto& one) { return one.get() == c; });
    return status;
}

Status Captures::add(const void* stream, NodeKind kind, Work work, std::shared_ptr<const Graph> inner) {
    Capture& c = *of(stream);
    if (c.broken) return kCaptureInvalidated;
    std::set<Node*>& needs = c.streams[stream];
    Node* node = c.graph->add(kind, {needs.begin(), needs.end()}, std::move(work));
    node->inner = std::move(inner);
    needs = {node};
    return kSuccess;
}

std::optional<Status> Captures::record(const void* event, const void* stream) {
    for (const auto& c : active_) c->events.erase(event);
    Capture* c = of(stream);
    if (!c) return {};
    if (c->broken) return kCaptureInvalidated;
    c->events[event] = c->streams[stream];
    return kSuccess;
}

std::optional<Status> Captures::wait(const void* stream, const void* event) {
    Capture *from = holder_of(event), *into = of(stream);
    if (!from && !into) return {};
    if (into && into->broken) return kCaptureInvalidated;
    if (!from) return broken(*into, kCaptureIsolation);
    if (from->broken) return kCaptureInvalidated;
    if (into && into != from) {
        broken(*from, kSuccess);
        return broken(*into, kCaptureMerge);
    }
    if (stream_of(stream).id == StreamOrder::kLegacy) return broken(*from, kCaptureImplicit);
    const std::set<Node*>& recorded = from->events[event];
    from->streams[stream].insert(recorded.begin(), recorded.end());
    return kSuccess;
}

void Captures::forget(const void* handle) {
    for (const auto& c : active_) {
        c->events.erase(handle);
        if (c->streams.contains(handle)) c->broken = true;
    }
    std::erase_if(active_, [&](const auto& c) { return c->origin == handle; });
}

Status Captures::host_waits(const void* stream) {
    Capture* c = of(stream);
    return c ? broken(*c, kCaptureUnsupported) : works(stream);
}

Status Captures::host_waits_for_event(const void* event) {
    Capture* c = holder_of(event);
    return c ? broken(*c, kCapturedEvent) : kSuccess;
}

Status Captures::host_waits() {
    Status status = kSuccess;
    if (capture_mode == kRelaxed) return status;
    for (const auto& c : active_) {
        const bool own = c->begun_by == std::this_thread::get_id();
        const bool forbids = own ? c->mode != kRelaxed : c->mode == kGlobal && capture_mode == kGlobal;
        if (forbids) status = broken(*c, kCaptureUnsupported);
    }
    return status;
}

Captures::Capture* Captures::forbids_legacy(const void* stream) {
    if (stream_of(stream).id != StreamOrder::kLegacy) return nullptr;
    for (const auto& c : active_)
        for (const auto& [captured, needs] : c->streams)
            if (stream_of(captured).blocking) return c.get();
    return nullptr;
}

Status Captures::works(const void* stream) {
    Capture* c = forbids_legacy(stream);
    return c ? broken(*c, kCaptureImplicit) : kSuccess;
}

std::optional<Status> noted_down(void* stream, NodeKind kind, const Work& work) {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    if (!p.captures.of(stream)) return {};
    return noted(p.captures.add(stream, kind, work));
}

Status uncaptured(const void* stream, const char* what) {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    Captures::Capture* c = p.captures.of(stream);
    return c ? broken(*c, p.refuse(std::string(what) + " in a stream that is captured")) : kSuccess;
}

}  // namespace fmha

using namespace fmha;

FMHA_EXPORT Status cudaStreamBeginCapture(void* s, int mode) {
    return with_device([&](Process& p) { return p.captures.begin(s, mode, nullptr, {}); });
}

FMHA_EXPORT Status cudaStreamEndCapture(void* s, void** out) {
    return with_device([&](Process& p) {
        if (!out) return Status{kInvalidValue};
        Graph* graph = nullptr;
        const Status status = p.captures.end(s, graph);
        if (graph) p.graphs.insert(graph);
        *out = graph;
        return status;
    });
}

FMHA_EXPORT Status cudaStreamBeginCaptureToGraph(void* s, void* graph, void* const* needs, const void* edges,
                                                 std::size_t n, int mode) {
    return with_device([&](Process& p) {
        if (edges) return p.refuse("data of edges of a graph");
        if (!p.graphs.contains(graph)) return Status{kInvalidValue};
        std::set<Node*> first;
        for (std::size_t i = 0; i < n; ++i) first.insert(static_cast<Node*>(needs[i]));
        return p.captures.begin(s, mode, static_cast<Graph*>(graph), std::move(first));
    });
}

FMHA_EXPORT Status cudaStreamIsCapturing(void* s, int* out) {
    return with_device([&](Process& p) {
        const Captures::Capture* c = p.captures.of(s);
        *out = c ? 1 + c->broken : 0;
        return Status{p.captures.forbids_legacy(s) ? kCaptureImplicit : kSuccess};
    });
}

FMHA_EXPORT Status cudaStreamGetCaptureInfo(void* s, int* state, std::uint64_t* id, void** graph, void*** needs,
                                            const void** edges, std::size_t* n) {
    return with_device([&](Process& p) {
        Captures::Capture* c = p.captures.of(s);
        *state = c ? 1 + c->broken : 0;
        if (!c) return Status{kSuccess};
        static thread_local std::vector<void*> told;
        told.assign(c->streams[s].begin(), c->streams[s].end());
        if (id) *id = c->id;
        if (graph) *graph = c->graph;
        if (needs) *needs = told.data();
        if (edges) *edges = nullptr;
        if (n) *n = told.size();
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaThreadExchangeStreamCaptureMode(int* mode) {
    if (!mode || *mode < kGlobal || *mode > kRelaxed) return noted(kInvalidValue);
    std::swap(*mode, capture_mode);
    return kSuccess;
}

FMHA_ALIAS(cudaStreamBeginCapture, _ptsz)
FMHA_ALIAS(cudaStreamBeginCaptureToGraph, _ptsz)
FMHA_ALIAS(cudaStreamEndCapture, _ptsz)
FMHA_ALIAS(cudaStreamIsCapturing, _ptsz)
FMHA_ALIAS(cudaStreamGetCaptureInfo, _ptsz)

// The driver's, which mean the same.
FMHA_EXPORT Status cuStreamBeginCapture_v2(void* s, int mode) { return cudaStreamBeginCapture(s, mode); }
FMHA_EXPORT Status cuStreamEndCapture(void* s, void** out) { return cudaStreamEndCapture(s, out); }
FMHA_EXPORT Status cuStreamIsCapturing(void* s, int* out) { return cudaStreamIsCapturing(s, out); }
FMHA_EXPORT Status cuStreamGetCaptureInfo_v3(void* s, int* state, std::uint64_t* id, void** graph, void*** needs,
                                             const void** edges, std::size_t* n) {
    return cudaStreamGetCaptureInfo(s, state, id, graph, needs, edges, n);
}
FMHA_EXPORT Status cuThreadExchangeStreamCaptureMode(int* mode) { return cudaThreadExchangeStreamCaptureMode(mode); }
