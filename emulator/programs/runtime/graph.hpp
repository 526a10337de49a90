// Graphs: nodes of work, each with those that come before it, made one by one or by the capture of streams.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "abi.hpp"

namespace fmha {

// What a node does, in a stream in which everything that it needs comes before it.
using Work = std::function<Status(void* stream)>;

enum class NodeKind { kernel, copy, fill, host, graph, empty };  // as cudaGraphNodeType numbers them

struct Graph;

struct Node {
    NodeKind kind;
    Work work{};
    std::vector<Node*> needs{};
    std::shared_ptr<const Graph> inner{};  // of a child graph: a copy, as it was then
};

struct Graph {
    std::vector<std::unique_ptr<Node>> nodes;

    Node* add(NodeKind kind, std::vector<Node*> needs, Work work);
    // Every node behind those that it needs; fewer where nodes wait for one another in a circle.
    std::vector<Node*> in_order() const;
    std::unique_ptr<Graph> copy() const;
};

// Streams whose work becomes a graph's nodes. The process's lock is held.
class Captures {
public:
    struct Capture {
        const void* origin;
        std::uint64_t id;
        int mode;
        std::thread::id begun_by;
        Graph* graph;
        std::unique_ptr<Graph> own;  // or it is the program's
        bool broken = false;
        std::map<const void*, std::set<Node*>> streams;  // that belong to it: what their next node needs
        std::map<const void*, std::set<Node*>> events;   // recorded in them
    };

    Status begin(const void* stream, int mode, Graph* into, std::set<Node*> needs);
    Status end(const void* stream, Graph*& out);
    Capture* of(const void* stream);
    Status add(const void* stream, NodeKind kind, Work work, std::shared_ptr<const Graph> inner = {});

    // What the capture of a stream makes of these calls; nothing where it has no part in them.
    std::optional<Status> record(const void* event, const void* stream);
    std::optional<Status> wait(const void* stream, const void* event);
    void forget(const void* handle);

    // Of calls that a capture does not allow, and that end it: the host waits for a stream or an event or for the whole
    // device, or work is put into the legacy stream.
    Status host_waits(const void* stream);
    Status host_waits_for_event(const void* event);
    Status host_waits();
    Status works(const void* stream);
    // The capture of a stream that waits for the legacy one, if that is `stream`.
    Capture* forbids_legacy(const void* stream);

private:
    Capture* holder_of(const void* event);
    std::vector<std::unique_ptr<Capture>> active_;
    std::uint64_t made_ = 0;
};

// The mode of cudaThreadExchangeStreamCaptureMode.
extern thread_local int capture_mode;
// Whether the thread is in cudaGraphLaunch.
extern thread_local bool in_graph;

std::optional<Status> noted_down(void* stream, NodeKind kind, const Work& work);

// Does the work, or makes a node of it where the stream is being captured.
template <class F>
Status in_stream(void* stream, NodeKind kind, F work) {
    const std::optional<Status> taken = noted_down(stream, kind, work);
    return taken ? *taken : work(stream);
}

// Of what a captured stream does not take.
Status uncaptured(const void* stream, const char* what);

}  // namespace fmha
