// The grids that kernels launch, as a tree below the one that the host has launched (CUDA C++ programming guide, CUDA
// dynamic parallelism).
//
// A grid runs once the one that launched it has run to its end: the guide promises no earlier start. Then those of one
// stream run in the order of their launches, each when those that it is behind are complete, with all that they have
// launched. A tail launch comes when all else that its parent has launched is complete.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "machine/machine.hpp"

namespace ptxm {

// cudaError_t, as far as the device runtime gives it.
enum class DeviceError : u32 {
    success = 0,
    invalid_value = 1,
    memory_allocation = 2,
    invalid_configuration = 9,
    invalid_device_function = 98,
    invalid_resource_handle = 400,
};

// Its name and CUDA's words for it; nulls for one that the device runtime does not give.
struct DeviceErrorText {
    const char *name, *words;
};
DeviceErrorText text_of(u32 error);

// What a launch has to know of a kernel.
struct DeviceKernel {
    std::string name;
    u32 param_bytes = 0;
    u32 max_threads = 1024;
    std::array<u32, 3> required_block{};  // zeros where any will do
    std::array<u32, 3> cluster{1, 1, 1};
    u32 shared_static = 0, most_shared = 0;  // the latter: with what a launch adds
    std::string refused{};                   // why the machine does not run it
};

struct DeviceGrid {
    u32 parent = 0;  // itself, of the host's
    u32 depth = 0;
    bool tail = false;
    u64 kernel = 0;  // its address
    Launch launch;
    std::vector<u32> behind;               // grids of the same parent that are complete when it begins
    std::shared_ptr<const Message> known;  // by the thread that launched it; null once nobody asks
    std::vector<u32> children;
    const Program* program = nullptr;  // once it has begun
    bool ended = false;
    u32 incomplete = 0;           // children that are not complete
    u32 in_flight = 0;            // its index among the launches in flight, from 1; 0 where that is forgotten
    std::vector<u32> complete{};  // of these, those that are complete when it begins
};

class GridTree {
public:
    // Ours, far beyond what programs have and a GPU was seen to do: a recursion without an end has one. Launches that
    // lead from the host's grid to one, of which a tail launch is none, and grids that are not complete.
    static constexpr u32 kMostDepth = 1024, kMostIncomplete = 1 << 16;
    static constexpr u64 kTailLaunch = 3, kFireAndForget = 4, kPerThread = 2, kLegacy = 1;

    // With the host's own grid alone.
    void begin(const Launch& launch, const Program& program, const std::vector<u32>& complete);

    // Of the grid that is running

    // Memory for the parameters of a launch, or 0 and an error of the thread.
    u64 parameters(Warp& w, u32 lane, u64 kernel, const std::array<u32, 3>& grid, const std::array<u32, 3>& block,
                   u32 shared);
    DeviceError launch(Warp& w, u32 lane, u64 parameters, u64 stream);
    u64 make_stream();
    u64 make_event();
    bool drop(u64 handle);
    DeviceError record(const Warp& w, u32 lane, u64 event, u64 stream);
    DeviceError wait(const Warp& w, u32 lane, u64 stream, u64 event);
    DeviceError fail(const Warp& w, u32 lane, DeviceError error);
    DeviceError last_error(const Warp& w, u32 lane, bool reset);
    // The address of an error's name, or of its words.
    u64 text(GlobalView& global, u32 error, bool name);

    // Between grids

    // The grid that runs next, of those that may. Nobody: all are complete.
    std::optional<u32> next(Schedule schedule, std::mt19937_64& random);
    // `id` is running, as the launch in flight of this index.
    void start(u32 id, const Program& program, u32 in_flight);
    // The grid that is running has come to its end.
    void end(GlobalView& global);
    // Launches in flight that are complete before this grid begins.
    std::vector<u32> complete_before(u32 id) const;
    // Which clusters were whose is forgotten.
    void forget();

    DeviceGrid& at(u32 id) { return grids_[id]; }
    u32 running() const { return running_; }
    u32 size() const { return static_cast<u32>(grids_.size()); }
    // The grid that is this launch in flight, or null.
    const DeviceGrid* of_launch(u32 in_flight) const;
    // Whether `grid` has launched the one that is running, or one above it.
    bool is_above(const DeviceGrid& grid) const;
    const std::string& name_of(const DeviceGrid& grid) const;

    std::string host;                               // the kernel that the host has launched
    std::unordered_map<u64, DeviceKernel> kernels;  // by their addresses
    std::unordered_map<u32, u32> attributes;        // of the device
    u32 pending_limit = 2048;  // cudaLimitDevRuntimePendingLaunchCount: an H200 launches more without an error

private:
    struct Slot {
        u64 kernel;
        std::array<u32, 3> grid, block;
        u32 shared;
    };
    using Behind = std::vector<u32>;

    DeviceError check(const DeviceKernel& kernel, const std::array<u32, 3>& grid, const std::array<u32, 3>& block,
                      u32 shared) const;
    u64 pending() const { return outstanding_ + slots_.size(); }
    // What comes next in a stream is behind these; null for a handle that the grid has not made.
    Behind* stream_of(const Warp& w, u32 lane, u64 stream);
    bool is_complete(u32 id) const { return grids_[id].ended && !grids_[id].incomplete; }
    bool may_begin(u32 id) const;
    // A grid and all below it, as launches in flight.
    void add_tree(u32 id, std::vector<u32>& to) const;

    std::deque<DeviceGrid> grids_;       // by the order of their launches, the host's first
    std::vector<u32> waiting_;           // in the order in which they begin where several may
    u32 running_ = 0, outstanding_ = 0;  // the latter: grids that were launched and are not complete
    // Of the grid that is running
    std::unordered_map<u64, Slot> slots_;               // by the address of the parameters
    std::unordered_map<u64, Behind> streams_, events_;  // by handle, of an implicit stream by its CTA or thread
    std::unordered_map<u64, DeviceError> errors_;       // by thread
    u64 next_handle_ = 0;
    std::unordered_map<u64, u64> texts_;  // addresses, by the error
};

}  // namespace ptxm
