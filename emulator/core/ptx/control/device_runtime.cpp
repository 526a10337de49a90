// What the device runtime of CUDA does in one step (CUDA C++ programming guide, CUDA dynamic parallelism). Its
// functions are PTX made of these steps: decode/control/device_runtime.py.
#include "isa/handlers.hpp"
#include "machine/grid/grid_tree.hpp"
#include "machine/machine.hpp"

namespace ptxm {
namespace {

// Operands of one lane.
class Operands {
public:
    Operands(Warp& w, const Inst& i, u32 lane) : w_(w), units_(w.ops(i)), lane_(lane) {}
    u32 word(u32 n) const { return w_.reg<u32>(units_[n])[lane_]; }
    u64 wide(u32 n) const { return w_.reg<u64>(units_[n])[lane_]; }
    std::array<u32, 3> dims(u32 n) const { return {word(n), word(n + 1), word(n + 2)}; }
    void give(u64 value) const { w_.reg<u64>(units_[0])[lane_] = value; }
    void give(DeviceError error) const { w_.reg<u32>(units_[0])[lane_] = static_cast<u32>(error); }
    void give_word(u32 value) const { w_.reg<u32>(units_[0])[lane_] = value; }

private:
    Warp& w_;
    const i32* units_;
    u32 lane_;
};

// Calls step(tree, lane, operands) for each lane.
template <class Step>
Flow each_lane(Warp& w, const Inst& i, u32 mask, Step step) {
    Machine& m = machine_of(w);
    if (m.global.logs()) {
        *m.program->communicates = true;
        throw Fault("internal", "clusters that run side by side launch nothing");
    }
    for (u32 l = 0; l < kLanes; ++l)
        if (mask >> l & 1) step(*m.tree, l, Operands(w, i, l));
    return Flow::next;
}

// What else there is to say of an error of a launch.
const char* why(DeviceError error) {
    switch (error) {
        case DeviceError::invalid_value:
            return ": a stream that no thread of this grid has made, or parameters of no launch";
        default: return "";
    }
}

void tell_failure(Warp& w, DeviceError error) {
    if (error != DeviceError::success)
        machine_of(w).report(
            &w, "device-launch",
            format("a launch from the device gives %s%s", text_of(static_cast<u32>(error)).name, why(error)), w.pc(),
            -1, Severity::warning);
}

// Operands: address, kernel, grid, block, dynamic shared memory.
Flow parameters(Warp& w, const Inst& i, u32 mask) {
    return each_lane(w, i, mask, [&](GridTree& tree, u32 lane, const Operands& o) {
        const u64 address = tree.parameters(w, lane, o.wide(1), o.dims(2), o.dims(5), o.word(8));
        if (!address) tell_failure(w, tree.last_error(w, lane, false));
        o.give(address);
    });
}

// Operands: error, address of the parameters, stream.
Flow launch(Warp& w, const Inst& i, u32 mask) {
    return each_lane(w, i, mask, [&](GridTree& tree, u32 lane, const Operands& o) {
        const DeviceError error = tree.launch(w, lane, o.wide(1), o.wide(2));
        tell_failure(w, error);
        o.give(error);
    });
}

Flow make_stream(Warp& w, const Inst& i, u32 mask) {
    return each_lane(w, i, mask, [](GridTree& tree, u32, const Operands& o) { o.give(tree.make_stream()); });
}

Flow make_event(Warp& w, const Inst& i, u32 mask) {
    return each_lane(w, i, mask, [](GridTree& tree, u32, const Operands& o) { o.give(tree.make_event()); });
}

// Operands: error, stream or event.
Flow drop(Warp& w, const Inst& i, u32 mask) {
    return each_lane(w, i, mask, [&](GridTree& tree, u32 lane, const Operands& o) {
        o.give(tree.drop(o.wide(1)) ? DeviceError::success : tree.fail(w, lane, DeviceError::invalid_resource_handle));
    });
}

// Operands: error, event, stream.
Flow record(Warp& w, const Inst& i, u32 mask) {
    return each_lane(w, i, mask, [&](GridTree& tree, u32 lane, const Operands& o) {
        o.give(tree.record(w, lane, o.wide(1), o.wide(2)));
    });
}

// Operands: error, stream, event.
Flow wait(Warp& w, const Inst& i, u32 mask) {
    return each_lane(w, i, mask, [&](GridTree& tree, u32 lane, const Operands& o) {
        o.give(tree.wait(w, lane, o.wide(1), o.wide(2)));
    });
}

// Operands: error, whether it is reset.
Flow last_error(Warp& w, const Inst& i, u32 mask) {
    return each_lane(w, i, mask, [&](GridTree& tree, u32 lane, const Operands& o) {
        o.give(tree.last_error(w, lane, o.word(1) != 0));
    });
}

// Operands: the error, twice.
Flow fail(Warp& w, const Inst& i, u32 mask) {
    return each_lane(w, i, mask, [&](GridTree& tree, u32 lane, const Operands& o) {
        o.give(tree.fail(w, lane, static_cast<DeviceError>(o.word(1))));
    });
}

// Operands: value, attribute.
Flow attribute(Warp& w, const Inst& i, u32 mask) {
    return each_lane(w, i, mask, [](GridTree& tree, u32, const Operands& o) {
        const auto known = tree.attributes.find(o.word(1));
        if (known == tree.attributes.end())
            throw Fault("device-runtime", format("cudaDeviceGetAttribute of attribute %u is not modelled", o.word(1)));
        o.give_word(known->second);
    });
}

// Operands: value, limit.
Flow limit(Warp& w, const Inst& i, u32 mask) {
    constexpr u32 kHeap = 2, kPending = 4;  // cudaLimitMallocHeapSize, cudaLimitDevRuntimePendingLaunchCount
    return each_lane(w, i, mask, [&](GridTree& tree, u32, const Operands& o) {
        if (o.word(1) != kHeap && o.word(1) != kPending)
            throw Fault("device-runtime", format("cudaDeviceGetLimit of limit %u is not modelled", o.word(1)));
        o.give(o.word(1) == kHeap ? machine_of(w).global.heap().limit : u64{tree.pending_limit});
    });
}

// Operands: address, error, whether its name is asked for.
Flow text(Warp& w, const Inst& i, u32 mask) {
    return each_lane(w, i, mask, [&](GridTree& tree, u32, const Operands& o) {
        o.give(tree.text(machine_of(w).global, o.word(1), o.word(2) != 0));
    });
}

}  // namespace

// clang-format off
#define PTXM_OPS_DEVICE_RUNTIME(X) \
    X(device_runtime, control, device_runtime)
// clang-format on

Handler bind_device_runtime(const InstRecord& r) {
    switch (static_cast<DeviceCall>(r.immediate)) {
        case DeviceCall::parameters: return parameters;
        case DeviceCall::launch: return launch;
        case DeviceCall::make_stream: return make_stream;
        case DeviceCall::make_event: return make_event;
        case DeviceCall::drop: return drop;
        case DeviceCall::record: return record;
        case DeviceCall::wait: return wait;
        case DeviceCall::last_error: return last_error;
        case DeviceCall::fail: return fail;
        case DeviceCall::attribute: return attribute;
        case DeviceCall::limit: return limit;
        case DeviceCall::text: return text;
        default: return nullptr;
    }
}

}  // namespace ptxm
