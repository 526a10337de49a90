#include "machine/grid/grid_tree.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ptxm {
namespace {

constexpr u64 kFirstHandle = 0x0600'0000'0000ull;  // where no memory lies
constexpr u32 kMostThreads = 1024;
constexpr std::array<u32, 3> kMostGrid{0x7FFF'FFFF, 65535, 65535}, kMostBlock{1024, 1024, 64};

u64 thread_of(const Warp& w, u32 lane) { return u64{w.cta->linear} * kMostThreads + w.index * kLanes + lane; }

bool within(const std::array<u32, 3>& dims, const std::array<u32, 3>& most) {
    for (u32 d = 0; d < 3; ++d)
        if (dims[d] < 1 || dims[d] > most[d]) return false;
    return true;
}

}  // namespace

void GridTree::begin(const Launch& launch, const Program& program, const std::vector<u32>& complete) {
    grids_.clear();
    waiting_.clear();
    outstanding_ = 0;
    grids_.emplace_back();
    grids_[0].launch = launch;
    grids_[0].launch.params.clear();
    start(0, program, 0);
    grids_[0].complete = complete;
}

DeviceError GridTree::check(const DeviceKernel& kernel, const std::array<u32, 3>& grid, const std::array<u32, 3>& block,
                            u32 shared) const {
    if (!within(grid, kMostGrid) || !within(block, kMostBlock)) return DeviceError::invalid_configuration;
    if (u64{block[0]} * block[1] * block[2] > kernel.max_threads) return DeviceError::invalid_configuration;
    if (kernel.required_block[0] && kernel.required_block != block) return DeviceError::invalid_configuration;
    if (u64{kernel.shared_static} + shared > kernel.most_shared) return DeviceError::invalid_configuration;
    return DeviceError::success;
}

u64 GridTree::parameters(Warp& w, u32 lane, u64 kernel, const std::array<u32, 3>& grid, const std::array<u32, 3>& block,
                         u32 shared) {
    const auto known = kernels.find(kernel);
    if (known == kernels.end()) {
        fail(w, lane, DeviceError::invalid_device_function);
        return 0;
    }
    if (!known->second.refused.empty())
        throw Fault("device-runtime", "launch of " + known->second.name + ": " + known->second.refused);
    if (pending() >= kMostIncomplete)
        throw Fault("device-runtime",
                    format("launch of %s: %u grids are launched and not complete, with those that have launched them: "
                           "more are not modelled",
                           known->second.name.c_str(), static_cast<u32>(pending())));
    if (fail(w, lane, check(known->second, grid, block, shared)) != DeviceError::success) return 0;
    const std::array<u32, 3>& cluster = known->second.cluster;
    for (u32 d = 0; d < 3; ++d)
        if (grid[d] % cluster[d])
            throw Fault(
                "device-runtime",
                format("launch of %s: a grid of %u x %u x %u CTAs is no multiple of its cluster's %u x %u x "
                       "%u, and no manual says which error that is",
                       known->second.name.c_str(), grid[0], grid[1], grid[2], cluster[0], cluster[1], cluster[2]));
    const u64 address = machine_of(w).global.allocate(std::max(known->second.param_bytes, 1u),
                                                      "the parameters of a launch of " + known->second.name);
    slots_[address] = {kernel, grid, block, shared};
    return address;
}

DeviceError GridTree::launch(Warp& w, u32 lane, u64 parameters, u64 stream) {
    const auto found = slots_.find(parameters);
    if (found == slots_.end()) return fail(w, lane, DeviceError::invalid_value);
    const Slot slot = found->second;
    Machine& m = machine_of(w);
    const Allocation& memory = *m.global.find(parameters, 1);
    const std::vector<u8> params(memory.data.get(), memory.data.get() + kernels.at(slot.kernel).param_bytes);
    m.global.release(parameters);
    slots_.erase(found);
    const bool tail = stream == kTailLaunch, free = stream == kFireAndForget;
    Behind* const order = tail || free ? nullptr : stream_of(w, lane, stream);
    if (!tail && !free && !order) return fail(w, lane, DeviceError::invalid_value);
    const DeviceGrid& parent = grids_[running_];
    if (!tail && parent.depth == kMostDepth)
        throw Fault("device-runtime",
                    format("launch of %s: %u launches lead from the host's grid to this one, and more are not modelled",
                           kernels.at(slot.kernel).name.c_str(), kMostDepth));
    const u32 id = size();
    DeviceGrid grid;
    grid.parent = running_;
    grid.depth = parent.depth + !tail;
    grid.tail = tail;
    grid.kernel = slot.kernel;
    grid.launch.grid = slot.grid;
    grid.launch.block = slot.block;
    grid.launch.cluster = kernels.at(slot.kernel).cluster;
    grid.launch.dynamic_shared = slot.shared;
    grid.launch.params = params;
    grid.launch.overlaps = true;
    grid.launch.number = parent.launch.number;
    grid.launch.beside = parent.launch.beside;
    if (order) grid.behind = std::exchange(*order, {id});
    grid.known = std::make_shared<const Message>(w.clocks.release(1u << lane));
    grids_.push_back(std::move(grid));
    grids_[running_].children.push_back(id);
    grids_[running_].incomplete += 1;
    outstanding_ += 1;
    return DeviceError::success;
}

u64 GridTree::make_stream() {
    const u64 handle = kFirstHandle + 16 * ++next_handle_;
    streams_[handle];
    return handle;
}

u64 GridTree::make_event() {
    const u64 handle = kFirstHandle + 16 * ++next_handle_;
    events_[handle];
    return handle;
}

bool GridTree::drop(u64 handle) { return streams_.erase(handle) || events_.erase(handle); }

GridTree::Behind* GridTree::stream_of(const Warp& w, u32 lane, u64 stream) {
    // The implicit stream is shared by the threads of a CTA.
    if (stream == 0 || stream == kLegacy) return &streams_[u64{w.cta->linear} << 1];
    if (stream == kPerThread) return &streams_[thread_of(w, lane) << 1 | 1];
    const auto made = streams_.find(stream);
    return stream < kFirstHandle || made == streams_.end() ? nullptr : &made->second;
}

DeviceError GridTree::record(const Warp& w, u32 lane, u64 event, u64 stream) {
    // The guide: neither of these can record an event or wait for one.
    if (stream == kTailLaunch || stream == kFireAndForget) return fail(w, lane, DeviceError::invalid_value);
    const Behind* const order = stream_of(w, lane, stream);
    const auto made = events_.find(event);
    if (!order || made == events_.end()) return fail(w, lane, DeviceError::invalid_resource_handle);
    made->second = *order;
    return DeviceError::success;
}

DeviceError GridTree::wait(const Warp& w, u32 lane, u64 stream, u64 event) {
    if (stream == kTailLaunch || stream == kFireAndForget) return fail(w, lane, DeviceError::invalid_value);
    Behind* const order = stream_of(w, lane, stream);
    const auto made = events_.find(event);
    if (!order || made == events_.end()) return fail(w, lane, DeviceError::invalid_resource_handle);
    order->insert(order->end(), made->second.begin(), made->second.end());
    return DeviceError::success;
}

DeviceError GridTree::fail(const Warp& w, u32 lane, DeviceError error) {
    if (error != DeviceError::success) errors_[thread_of(w, lane)] = error;
    return error;
}

DeviceError GridTree::last_error(const Warp& w, u32 lane, bool reset) {
    const auto found = errors_.find(thread_of(w, lane));
    if (found == errors_.end()) return DeviceError::success;
    const DeviceError error = found->second;
    if (reset) errors_.erase(found);
    return error;
}

DeviceErrorText text_of(u32 error) {
    switch (error) {
        case 0: return {"cudaSuccess", "no error"};
        case 1: return {"cudaErrorInvalidValue", "invalid argument"};
        case 2: return {"cudaErrorMemoryAllocation", "out of memory"};
        case 9: return {"cudaErrorInvalidConfiguration", "invalid configuration argument"};
        case 21: return {"cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"};
        case 65: return {"cudaErrorLaunchMaxDepthExceeded", "launch would exceed maximum depth of nested launches"};
        case 69:
            return {"cudaErrorLaunchPendingCountExceeded",
                    "launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount"};
        case 98: return {"cudaErrorInvalidDeviceFunction", "invalid device function"};
        case 101: return {"cudaErrorInvalidDevice", "invalid device ordinal"};
        case 400: return {"cudaErrorInvalidResourceHandle", "invalid resource handle"};
        case 701: return {"cudaErrorLaunchOutOfResources", "too many resources requested for launch"};
        default: return {};
    }
}

u64 GridTree::text(GlobalView& global, u32 error, bool name) {
    const DeviceErrorText known = text_of(error);
    if (!known.name) throw Fault("device-runtime", format("the name of error %u is not modelled", error));
    u64& address = texts_[u64{error} << 1 | name];
    if (address) return address;
    const char* const text = name ? known.name : known.words;
    const u64 size = std::strlen(text) + 1;
    address = global.allocate(size, known.name);
    Allocation& memory = *global.find(address, size);
    std::memcpy(memory.data.get(), text, size);
    memory.written.add(0, size);
    return address;
}

bool GridTree::may_begin(u32 id) const {
    const DeviceGrid& grid = grids_[id];
    const auto done = [&](u32 other) { return is_complete(other); };
    if (!std::ranges::all_of(grid.behind, done)) return false;
    return !grid.tail || std::ranges::all_of(grids_[grid.parent].children, [&](u32 other) {
        return (grids_[other].tail && other >= id) || is_complete(other);
    });
}

std::optional<u32> GridTree::next(Schedule schedule, std::mt19937_64& random) {
    std::vector<u32> ready;
    for (const u32 id : waiting_) {
        if (!may_begin(id)) continue;
        ready.push_back(id);
        if (!draws(schedule) && schedule != Schedule::late) break;
    }
    if (ready.empty()) return std::nullopt;
    const u32 id = draws(schedule) ? ready[random() % ready.size()] : ready.back();
    std::erase(waiting_, id);
    return id;
}

void GridTree::start(u32 id, const Program& program, u32 in_flight) {
    running_ = id;
    grids_[id].program = &program;
    grids_[id].in_flight = in_flight;
    slots_.clear();
    streams_.clear();
    events_.clear();
    errors_.clear();
}

void GridTree::end(GlobalView& global) {
    for (const auto& [parameters, slot] : slots_) global.release(parameters);
    slots_.clear();
    waiting_.insert(waiting_.begin(), grids_[running_].children.begin(), grids_[running_].children.end());
    grids_[running_].ended = true;
    grids_[running_].known.reset();
    for (u32 id = running_; id && is_complete(id); id = grids_[id].parent) {
        grids_[grids_[id].parent].incomplete -= 1;
        outstanding_ -= 1;
    }
}

void GridTree::add_tree(u32 id, std::vector<u32>& to) const {
    for (std::vector<u32> below{id}; !below.empty();) {
        const DeviceGrid& grid = grids_[below.back()];
        below.pop_back();
        if (grid.in_flight) to.push_back(grid.in_flight);
        below.insert(below.end(), grid.children.begin(), grid.children.end());
    }
}

std::vector<u32> GridTree::complete_before(u32 id) const {
    const DeviceGrid& grid = grids_[id];
    const DeviceGrid& parent = grids_[grid.parent];
    std::vector<u32> found = parent.complete;
    for (const u32 other : grid.behind) {
        found.insert(found.end(), grids_[other].complete.begin(), grids_[other].complete.end());
        add_tree(other, found);
    }
    if (grid.tail) {
        if (parent.in_flight) found.push_back(parent.in_flight);
        for (const u32 other : parent.children)
            if (!grids_[other].tail || other < id) add_tree(other, found);
    }
    std::ranges::sort(found);
    const auto twice = std::ranges::unique(found);
    found.erase(twice.begin(), twice.end());
    return found;
}

void GridTree::forget() {
    for (DeviceGrid& grid : grids_) {
        grid.known.reset();
        grid.in_flight = 0;
        grid.complete.clear();
    }
}

const DeviceGrid* GridTree::of_launch(u32 in_flight) const {
    for (const DeviceGrid& grid : grids_)
        if (grid.in_flight == in_flight) return &grid;
    return nullptr;
}

bool GridTree::is_above(const DeviceGrid& grid) const {
    for (u32 id = running_; id; id = grids_[id].parent)
        if (&grids_[grids_[id].parent] == &grid) return true;
    return false;
}

const std::string& GridTree::name_of(const DeviceGrid& grid) const {
    const auto kernel = kernels.find(grid.kernel);
    return kernel == kernels.end() ? host : kernel->second.name;
}

}  // namespace ptxm
