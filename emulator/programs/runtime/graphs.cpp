// Graphs that a program makes of nodes or captures, and their launches. A launch runs the nodes one after another; for
// StreamOrder it has as many streams as nodes can run beside one another.
#include <cstring>

#include "cuda_copy.hpp"
#include "cuda_launch.hpp"

FMHA_EXPORT fmha::Status cudaStreamCreateWithFlags(void**, unsigned);
FMHA_EXPORT fmha::Status cudaStreamDestroy(void*);
FMHA_EXPORT fmha::Status cudaMemcpyAsync(void*, const void*, std::size_t, int, void*);
FMHA_EXPORT fmha::Status cudaMemcpyToSymbolAsync(const void*, const void*, std::size_t, std::size_t, int, void*);
FMHA_EXPORT fmha::Status cudaMemcpyFromSymbolAsync(void*, const void*, std::size_t, std::size_t, int, void*);
FMHA_EXPORT fmha::Status cudaMemcpy3DAsync(const fmha::Copy3D*, void*);

namespace fmha {

thread_local bool in_graph = false;

Node* Graph::add(NodeKind kind, std::vector<Node*> needs, Work work) {
    nodes.push_back(std::make_unique<Node>(Node{kind, std::move(work), std::move(needs)}));
    return nodes.back().get();
}

std::vector<Node*> Graph::in_order() const {
    std::map<const Node*, std::size_t> open;
    std::map<const Node*, std::vector<Node*>> behind;
    std::vector<Node*> order;
    for (const auto& node : nodes) {
        open[node.get()] = node->needs.size();
        for (const Node* need : node->needs) behind[need].push_back(node.get());
        if (node->needs.empty()) order.push_back(node.get());
    }
    for (std::size_t at = 0; at < order.size(); ++at)
        for (Node* next : behind[order[at]])
            if (--open[next] == 0) order.push_back(next);
    return order;
}

std::unique_ptr<Graph> Graph::copy() const {
    auto made = std::make_unique<Graph>();
    std::map<const Node*, Node*> twins;
    for (const auto& node : nodes) {
        made->nodes.push_back(std::make_unique<Node>(*node));
        twins[node.get()] = made->nodes.back().get();
    }
    for (const auto& node : made->nodes)
        for (Node*& need : node->needs) need = twins.at(need);
    return made;
}

namespace {

struct Step {
    const Node* of;  // its address alone is asked for: the graph may be gone
    NodeKind kind;
    Work work;
    std::vector<std::size_t> needs;  // earlier steps
    std::size_t lane = 0;
};

// What cudaGraphInstantiate makes: steps in an order that keeps the graph's, child graphs among them. Steps that wait
// for one another share a lane; lane 0 is the stream that the graph is launched into, each other a stream of its own.
struct Exec {
    std::vector<Step> steps;
    std::vector<void*> lanes;
    std::shared_ptr<const Graph> graph;
    char begin = 0, end = 0;  // their addresses are events
};

std::set<const void*> execs;  // under the process's lock

using Steps = std::vector<Step>;

// The steps of a graph's nodes, of which the first come behind `entry`; what comes last is returned.
std::vector<std::size_t> flatten(const Graph& graph, const std::vector<std::size_t>& entry, Steps& steps) {
    std::map<const Node*, std::vector<std::size_t>> ends;
    std::set<std::size_t> last(entry.begin(), entry.end());
    for (const Node* node : graph.in_order()) {
        std::set<std::size_t> needs;
        for (const Node* need : node->needs) needs.insert(ends[need].begin(), ends[need].end());
        if (node->needs.empty()) needs.insert(entry.begin(), entry.end());
        std::vector<std::size_t> before(needs.begin(), needs.end());
        if (node->kind == NodeKind::graph) {
            ends[node] = flatten(*node->inner, before, steps);
        } else {
            ends[node] = {steps.size()};
            steps.push_back({node, node->kind, node->work, before});
        }
        for (const std::size_t need : before) last.erase(need);
        last.insert(ends[node].begin(), ends[node].end());
    }
    return {last.begin(), last.end()};
}

std::size_t assign_lanes(Steps& steps) {
    std::vector<bool> continued(steps.size());
    std::size_t count = 0;
    for (Step& step : steps) {
        const auto free = std::ranges::find_if(step.needs, [&](std::size_t need) { return !continued[need]; });
        if (free == step.needs.end()) {
            step.lane = count++;
        } else {
            step.lane = steps[*free].lane;
            continued[*free] = true;
        }
    }
    return count;
}

Status instantiate(Process& p, void** out, const void* handle, unsigned long long flags) {
    constexpr unsigned long long kOnDevice = 4;
    if (!out || !p.graphs.contains(handle)) return kInvalidValue;
    if (flags & kOnDevice) return p.refuse("a graph to be launched by a kernel");
    const Graph& graph = *static_cast<const Graph*>(handle);
    if (graph.in_order().size() != graph.nodes.size()) return kInvalidValue;
    auto exec = std::make_unique<Exec>();
    exec->graph = graph.copy();
    flatten(graph, {}, exec->steps);
    for (std::size_t lanes = assign_lanes(exec->steps); lanes > 1; --lanes) {
        exec->lanes.push_back(nullptr);
        if (const Status status = create_branch(&exec->lanes.back())) return status;
    }
    execs.insert(exec.get());
    *out = exec.release();
    return kSuccess;
}

void* lane_of(const Exec& exec, std::size_t lane, void* stream) { return lane ? exec.lanes[lane - 1] : stream; }

Status run(Process& p, const Exec& exec, void* stream) {
    {
        std::lock_guard lock(p.mutex);
        p.order.wait(stream_of(stream), &exec.end);  // launches of one graph never run beside one another
        p.order.record(&exec.begin, stream_of(stream));
        for (const void* lane : exec.lanes) p.order.wait(stream_of(lane), &exec.begin);
    }
    for (const Step& step : exec.steps) {
        void* lane = lane_of(exec, step.lane, stream);
        {
            std::lock_guard lock(p.mutex);
            for (const std::size_t need : step.needs)
                if (exec.steps[need].lane != step.lane) p.order.wait(stream_of(lane), &exec.steps[need]);
        }
        if (step.work)
            if (const Status status = step.work(lane)) return status;
        std::lock_guard lock(p.mutex);
        p.order.record(&step, stream_of(lane));
    }
    std::lock_guard lock(p.mutex);
    for (const Step& step : exec.steps)
        if (step.lane) p.order.wait(stream_of(stream), &step);
    p.order.record(&exec.end, stream_of(stream));
    return kSuccess;
}

// A new node's, of a graph of the program's.
template <class F>
Status add_node(void** out, void* handle, void* const* needs, std::size_t n, NodeKind kind, F make) {
    return with_device([&](Process& p) {
        if (!out || !p.graphs.contains(handle) || (n && !needs)) return Status{kInvalidValue};
        Graph& graph = *static_cast<Graph*>(handle);
        std::vector<Node*> before;
        for (std::size_t i = 0; i < n; ++i) before.push_back(static_cast<Node*>(needs[i]));
        for (const Node* need : before)
            if (std::ranges::none_of(graph.nodes, [&](const auto& known) { return known.get() == need; }))
                return Status{kInvalidValue};
        Work work;
        if (const Status status = make(p, work)) return status;
        *out = graph.add(kind, std::move(before), std::move(work));
        return Status{kSuccess};
    });
}

Status kernel_work(Process& p, const KernelNode* given, Work& work) {
    if (!given) return kInvalidValue;
    if (given->extra) return p.refuse("cudaKernelNodeParams with extra");
    const Shape shape{given->grid, given->block, given->shared_bytes};
    return launch_later(p, p.function(given->function), shape, given->arguments, work);
}

Status fill_work(const FillNode* given, Work& work) {
    if (!given) return kInvalidValue;
    work = [f = *given](void* stream) {
        return on_stream(stream, [&](Process& p) {
            return fill(p, {f.to, f.pitch, 0}, {f.width * f.element, f.height}, f.value, f.element);
        });
    };
    return kSuccess;
}

Status box_work(const Copy3D* given, Work& work) {
    if (!given) return kInvalidValue;
    work = [c = *given](void* stream) { return cudaMemcpy3DAsync(&c, stream); };
    return kSuccess;
}

Work flat_work(void* to, const void* from, std::size_t n, int kind) {
    return [=](void* stream) { return cudaMemcpyAsync(to, from, n, kind, stream); };
}

// Another work for a node of a graph, or of what it was instantiated to.
template <class F>
Status change(void* exec_handle, void* handle, F make) {
    return with_device([&](Process& p) {
        Work work;
        if (const Status status = make(p, work)) return status;
        if (!exec_handle) {
            static_cast<Node*>(handle)->work = std::move(work);
            return Status{kSuccess};
        }
        if (!execs.contains(exec_handle)) return Status{kInvalidValue};
        for (Step& step : static_cast<Exec*>(exec_handle)->steps)
            if (step.of == handle) {
                step.work = std::move(work);
                return Status{kSuccess};
            }
        return Status{kInvalidValue};
    });
}

// As CUDA gives lists: all of them where there is no place for any yet, else as many as there is place for.
Status listed(const std::vector<void*>& found, void** out, std::size_t* n) {
    if (!n) return kInvalidValue;
    if (out) {
        for (std::size_t i = 0; i < *n; ++i) out[i] = i < found.size() ? found[i] : nullptr;
        *n = std::min(*n, found.size());
    } else {
        *n = found.size();
    }
    return kSuccess;
}

}  // namespace
}  // namespace fmha

using namespace fmha;

FMHA_EXPORT Status cudaGraphCreate(void** out, unsigned) {
    return with_device([&](Process& p) {
        if (!out) return Status{kInvalidValue};
        *out = new Graph;
        p.graphs.insert(*out);
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaGraphDestroy(void* graph) {
    return with_device([&](Process& p) {
        if (!p.graphs.erase(graph)) return Status{kInvalidValue};
        delete static_cast<Graph*>(graph);
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaGraphClone(void** out, void* graph) {
    return with_device([&](Process& p) {
        if (!out || !p.graphs.contains(graph)) return Status{kInvalidValue};
        *out = static_cast<const Graph*>(graph)->copy().release();
        p.graphs.insert(*out);
        return Status{kSuccess};
    });
}

// Nodes

FMHA_EXPORT Status cudaGraphAddKernelNode(void** out, void* g, void* const* needs, std::size_t n,
                                          const KernelNode* given) {
    return add_node(out, g, needs, n, NodeKind::kernel,
                    [&](Process& p, Work& work) { return kernel_work(p, given, work); });
}

FMHA_EXPORT Status cudaGraphAddMemcpyNode(void** out, void* g, void* const* needs, std::size_t n, const Copy3D* given) {
    return add_node(out, g, needs, n, NodeKind::copy, [&](Process&, Work& work) { return box_work(given, work); });
}

FMHA_EXPORT Status cudaGraphAddMemcpyNode1D(void** out, void* g, void* const* needs, std::size_t n, void* to,
                                            const void* from, std::size_t bytes, int kind) {
    return add_node(out, g, needs, n, NodeKind::copy, [&](Process&, Work& work) {
        work = flat_work(to, from, bytes, kind);
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaGraphAddMemcpyNodeToSymbol(void** out, void* g, void* const* needs, std::size_t n,
                                                  const void* to, const void* from, std::size_t bytes,
                                                  std::size_t offset, int kind) {
    return add_node(out, g, needs, n, NodeKind::copy, [&](Process&, Work& work) {
        work = [=](void* stream) { return cudaMemcpyToSymbolAsync(to, from, bytes, offset, kind, stream); };
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaGraphAddMemcpyNodeFromSymbol(void** out, void* g, void* const* needs, std::size_t n, void* to,
                                                    const void* from, std::size_t bytes, std::size_t offset, int kind) {
    return add_node(out, g, needs, n, NodeKind::copy, [&](Process&, Work& work) {
        work = [=](void* stream) { return cudaMemcpyFromSymbolAsync(to, from, bytes, offset, kind, stream); };
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaGraphAddMemsetNode(void** out, void* g, void* const* needs, std::size_t n,
                                          const FillNode* given) {
    return add_node(out, g, needs, n, NodeKind::fill, [&](Process&, Work& work) { return fill_work(given, work); });
}

FMHA_EXPORT Status cudaGraphAddHostNode(void** out, void* g, void* const* needs, std::size_t n, const HostNode* given) {
    return add_node(out, g, needs, n, NodeKind::host, [&](Process&, Work& work) {
        if (!given) return Status{kInvalidValue};
        work = [h = *given](void*) {
            h.function(h.data);
            return Status{kSuccess};
        };
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaGraphAddEmptyNode(void** out, void* g, void* const* needs, std::size_t n) {
    return add_node(out, g, needs, n, NodeKind::empty, [](Process&, Work&) { return Status{kSuccess}; });
}

FMHA_EXPORT Status cudaGraphAddChildGraphNode(void** out, void* g, void* const* needs, std::size_t n, void* child) {
    std::shared_ptr<const Graph> inner;
    const Status status = add_node(out, g, needs, n, NodeKind::graph, [&](Process& p, Work&) {
        if (!p.graphs.contains(child)) return Status{kInvalidValue};
        inner = static_cast<const Graph*>(child)->copy();
        return Status{kSuccess};
    });
    if (!status) static_cast<Node*>(*out)->inner = std::move(inner);
    return status;
}

FMHA_EXPORT Status cudaGraphAddDependencies(void* g, void* const* from, void* const* to, const void* edges,
                                            std::size_t n) {
    return with_device([&](Process& p) {
        if (edges) return p.refuse("data of edges of a graph");
        if (!p.graphs.contains(g)) return Status{kInvalidValue};
        for (std::size_t i = 0; i < n; ++i) {
            auto& needs = static_cast<Node*>(to[i])->needs;
            if (std::ranges::find(needs, from[i]) != needs.end()) return Status{kInvalidValue};
            needs.push_back(static_cast<Node*>(from[i]));
        }
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaGraphKernelNodeSetParams(void* node, const KernelNode* given) {
    return change(nullptr, node, [&](Process& p, Work& work) { return kernel_work(p, given, work); });
}
FMHA_EXPORT Status cudaGraphExecKernelNodeSetParams(void* exec, void* node, const KernelNode* given) {
    return change(exec, node, [&](Process& p, Work& work) { return kernel_work(p, given, work); });
}
FMHA_EXPORT Status cudaGraphExecMemsetNodeSetParams(void* exec, void* node, const FillNode* given) {
    return change(exec, node, [&](Process&, Work& work) { return fill_work(given, work); });
}
FMHA_EXPORT Status cudaGraphExecMemcpyNodeSetParams(void* exec, void* node, const Copy3D* given) {
    return change(exec, node, [&](Process&, Work& work) { return box_work(given, work); });
}
FMHA_EXPORT Status cudaGraphExecMemcpyNodeSetParams1D(void* exec, void* node, void* to, const void* from,
                                                      std::size_t bytes, int kind) {
    return change(exec, node, [&](Process&, Work& work) {
        work = flat_work(to, from, bytes, kind);
        return Status{kSuccess};
    });
}

// What a graph consists of

FMHA_EXPORT Status cudaGraphGetNodes(void* g, void** out, std::size_t* n) {
    return with_device([&](Process& p) {
        if (!p.graphs.contains(g)) return Status{kInvalidValue};
        std::vector<void*> found;
        for (const auto& node : static_cast<Graph*>(g)->nodes) found.push_back(node.get());
        return listed(found, out, n);
    });
}

FMHA_EXPORT Status cudaGraphGetRootNodes(void* g, void** out, std::size_t* n) {
    return with_device([&](Process& p) {
        if (!p.graphs.contains(g)) return Status{kInvalidValue};
        std::vector<void*> found;
        for (const auto& node : static_cast<Graph*>(g)->nodes)
            if (node->needs.empty()) found.push_back(node.get());
        return listed(found, out, n);
    });
}

FMHA_EXPORT Status cudaGraphNodeGetDependencies(void* node, void** out, void*, std::size_t* n) {
    return with_device([&](Process&) {
        const auto& needs = static_cast<const Node*>(node)->needs;
        return listed({needs.begin(), needs.end()}, out, n);
    });
}

FMHA_EXPORT Status cudaGraphNodeGetType(void* node, int* out) {
    return with_device([&](Process&) {
        if (!node || !out) return Status{kInvalidValue};
        *out = static_cast<int>(static_cast<const Node*>(node)->kind);
        return Status{kSuccess};
    });
}

// Launches

FMHA_EXPORT Status cudaGraphInstantiate(void** out, void* g, unsigned long long flags) {
    return with_device([&](Process& p) { return instantiate(p, out, g, flags); });
}
FMHA_EXPORT Status cudaGraphInstantiateWithFlags(void** out, void* g, unsigned long long flags) {
    return cudaGraphInstantiate(out, g, flags);
}
FMHA_EXPORT Status cudaGraphInstantiateWithParams(void** out, void* g, InstantiateParams* params) {
    if (!params) return noted(kInvalidValue);
    const Status status = cudaGraphInstantiate(out, g, params->flags);
    params->wrong_node = nullptr;
    params->result = status ? 1 : 0;
    return status;
}

FMHA_EXPORT Status cudaGraphUpload(void* exec, void*) {
    return with_device([&](Process&) { return Status{execs.contains(exec) ? kSuccess : kInvalidValue}; });
}

FMHA_EXPORT Status cudaGraphLaunch(void* handle, void* s) {
    Process& p = Process::the();
    {
        std::lock_guard lock(p.mutex);
        if (const Status standing = p.ready()) return noted(standing);
        if (!execs.contains(handle)) return noted(kInvalidValue);
        if (p.captures.of(s))
            return noted(p.captures.add(s, NodeKind::graph, {}, static_cast<const Exec*>(handle)->graph));
        if (const Status forbidden = p.captures.works(s)) return noted(forbidden);
    }
    in_graph = true;
    const Status status = run(p, *static_cast<const Exec*>(handle), s);
    in_graph = false;
    return noted(status);
}

FMHA_EXPORT Status cudaGraphExecUpdate(void* handle, void* g, UpdateResult* out) {
    enum { kUpdated, kError, kOtherTopology };
    return with_device([&](Process& p) {
        if (!execs.contains(handle) || !p.graphs.contains(g)) return Status{kInvalidValue};
        Exec& exec = *static_cast<Exec*>(handle);
        Steps steps;
        flatten(*static_cast<const Graph*>(g), {}, steps);
        assign_lanes(steps);
        const bool same = std::ranges::equal(
            steps, exec.steps, [](const Step& a, const Step& b) { return a.kind == b.kind && a.needs == b.needs; });
        if (out) *out = {same ? kUpdated : kOtherTopology, nullptr, nullptr};
        if (!same) return Status{kGraphUpdate};
        for (std::size_t i = 0; i < steps.size(); ++i) {
            exec.steps[i].of = steps[i].of;
            exec.steps[i].work = std::move(steps[i].work);
        }
        exec.graph = static_cast<const Graph*>(g)->copy();
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaGraphExecDestroy(void* handle) {
    return with_device([&](Process& p) {
        if (!execs.erase(handle)) return Status{kInvalidValue};
        const std::unique_ptr<Exec> exec(static_cast<Exec*>(handle));
        for (const Step& step : exec->steps) p.order.forget(&step);
        p.order.forget(&exec->begin);
        p.order.forget(&exec->end);
        for (void* lane : exec->lanes) cudaStreamDestroy(lane);
        return Status{kSuccess};
    });
}

FMHA_ALIAS(cudaGraphInstantiateWithParams, _ptsz)
FMHA_ALIAS(cudaGraphLaunch, _ptsz)
FMHA_ALIAS(cudaGraphUpload, _ptsz)

// The driver's, which mean the same.
FMHA_EXPORT Status cuGraphCreate(void** out, unsigned flags) { return cudaGraphCreate(out, flags); }
FMHA_EXPORT Status cuGraphDestroy(void* g) { return cudaGraphDestroy(g); }
FMHA_EXPORT Status cuGraphClone(void** out, void* g) { return cudaGraphClone(out, g); }
FMHA_EXPORT Status cuGraphAddEmptyNode(void** out, void* g, void* const* needs, std::size_t n) {
    return cudaGraphAddEmptyNode(out, g, needs, n);
}
FMHA_EXPORT Status cuGraphAddHostNode(void** out, void* g, void* const* needs, std::size_t n, const HostNode* given) {
    return cudaGraphAddHostNode(out, g, needs, n, given);
}
FMHA_EXPORT Status cuGraphAddChildGraphNode(void** out, void* g, void* const* needs, std::size_t n, void* child) {
    return cudaGraphAddChildGraphNode(out, g, needs, n, child);
}
FMHA_EXPORT Status cuGraphGetNodes(void* g, void** out, std::size_t* n) { return cudaGraphGetNodes(g, out, n); }
FMHA_EXPORT Status cuGraphGetRootNodes(void* g, void** out, std::size_t* n) { return cudaGraphGetRootNodes(g, out, n); }
FMHA_EXPORT Status cuGraphNodeGetType(void* node, int* out) { return cudaGraphNodeGetType(node, out); }
FMHA_EXPORT Status cuGraphInstantiateWithFlags(void** out, void* g, unsigned long long flags) {
    return cudaGraphInstantiate(out, g, flags);
}
FMHA_EXPORT Status cuGraphUpload(void* exec, void* s) { return cudaGraphUpload(exec, s); }
FMHA_EXPORT Status cuGraphLaunch(void* exec, void* s) { return cudaGraphLaunch(exec, s); }
FMHA_EXPORT Status cuGraphExecDestroy(void* exec) { return cudaGraphExecDestroy(exec); }
