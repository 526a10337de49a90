// What this library knows of the program that it is loaded into: kernels and variables that nvcc's code has registered,
// memory that it has, and the error that a launch has left. Everything else is the emulator's.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph.hpp"
#include "stream_order.hpp"
#include "wire.hpp"

namespace fmha {

using Address = std::uint64_t;

// Of the device, as the emulator says when the program's first call reaches it.
struct DeviceFacts {
    std::string name;
    int major = 0, minor = 0, multiprocessors = 0, clock_khz = 0, memory_clock_khz = 0, bus_bits = 0, l2_bytes = 0;
    std::size_t memory = 0;
};

struct Module {
    const void* image = nullptr;  // a fat binary, or PTX, that the program keeps
    std::size_t size = 0;
    std::vector<char> own;  // or this library does
    Address id = 0;         // the emulator's, 0 before it has the image
};

struct Parameter {
    std::size_t offset, size;
};

struct Function {
    Module* module = nullptr;
    std::string name{};
    Address id = 0;
    std::vector<Parameter> parameters{};
    std::size_t parameter_bytes = 0;
    int max_dynamic_shared = -1;  // what the program has set, or -1
    int carveout = -1;
    bool non_portable_cluster = false;
};

struct Variable {
    Module* module = nullptr;
    std::string name;
    void** pointer = nullptr;  // of a managed one: where the program has its address
    Address address = 0;
    std::size_t size = 0;
};

enum class Kind { device, managed, host, registered, array };

struct Allocation {
    std::size_t size = 0;
    Kind kind = Kind::device;
    char* host = nullptr;       // where the program sees it, if it does
    std::vector<char> known{};  // what the emulator has of that
};

class Process {
public:
    static Process& the();

    std::recursive_mutex mutex;
    DeviceFacts device;
    std::map<Address, Allocation> allocations;
    std::unordered_map<const void*, Function*> stubs;  // by the host function that stands for a kernel
    std::set<const void*> functions;                   // all of them: their addresses are handles
    std::unordered_map<const void*, Variable> variables;
    std::set<Module*> modules;
    StreamOrder order;
    StreamOrder::Stream working{StreamOrder::kLegacy, true};  // what the call in progress puts its work into
    Captures captures;
    std::set<const void*> graphs;  // their addresses are handles

    // Before every call that needs the device: kSuccess, or the error that stands.
    Status ready();
    // The same, once what launches have left is there: their output is printed, their error stands from now on.
    Status settle();
    void leave(Status error) { pending_ = pending_ ? pending_ : error; }
    void printed(bool error, std::string text) { output_.emplace_back(error, std::move(text)); }
    Reply ask(Request request) { return connection_.ask(std::move(request)); }
    // A call, or a use of one, that is not modelled: says so once, and returns kNotSupported.
    Status refuse(const std::string& what);

    Function* function(const void* handle);
    Status load(Module& module);
    Status resolve(Function& function);
    Status resolve(Variable& variable);

    // What cudaPointerGetAttributes knows of an address: which memory it is in, of the allocations or of a module's
    // variables. False for everything else.
    struct Place {
        Kind kind;
        Address base, at;  // of the memory, and of this byte, as kernels have them
        std::size_t size;
        char* host;  // this byte as the program has it, or null
    };
    bool find(const void* pointer, Place& out);
    // The allocation that an address is in: of the device's addresses or, of host memory, of the program's.
    std::pair<const Address, Allocation>* holder(const void* pointer);
    Status allocate(std::size_t size, Kind kind, Address& address, char* host = nullptr);
    // In the order of the stream that the call works in, or once nothing runs any longer.
    Status release(Address address, bool in_stream = false);
    void forget_all();  // cudaDeviceReset
    // What the program has written to memory that it shares with kernels, and what a kernel has.
    void send_shared(Request& request);
    void receive_shared(Reply& reply);

    // The stream of the launch that was the last thing asked of the device, or nothing.
    bool follows_launch(const void* stream) const { return chained_ && chain_ == stream; }
    void launched(const void* stream) {
        chained_ = true;
        chain_ = stream;
    }

    void after_fork(bool child);
    void end();

private:
    bool map_pages(Address address, std::size_t size);

    Connection connection_;
    bool tried_ = false, lost_in_fork_ = false, chained_ = false;
    const void* chain_ = nullptr;
    Status sticky_ = kSuccess, pending_ = kSuccess;
    std::vector<std::pair<bool, std::string>> output_;
    std::set<Address> pages_;
    std::set<std::string> refused_;
};

// The runtime's last error, of the thread.
extern thread_local Status last_error;

inline Status noted(Status status) {
    if (status) last_error = status;
    return status;
}

// The body of a call that needs the device: `f` runs once earlier launches have told their errors.
template <class F>
Status on_device(F f) {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    if (const Status forbidden = p.captures.host_waits()) return noted(forbidden);
    const Status standing = p.settle();
    p.order.host_waits();
    p.working = {StreamOrder::kLegacy, true};
    return noted(standing ? standing : f(p));
}

// A request for work in the stream of the call: what may run beside it is told behind the fields that are there, and
// the reply begins with the work's name.
Reply ask_in_order(Process& p, Request request);

// What a handle stands for; the default streams, and handles that are none, are the legacy one.
StreamOrder::Stream stream_of(const void* handle);

// A stream for a branch of a graph.
Status create_branch(void** out);

// Of a call that puts work into a stream, and leaves the host to go on.
template <class F>
Status on_stream(const void* stream, F f) {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    if (const Status forbidden = p.captures.works(stream)) return noted(forbidden);
    const Status standing = p.settle();
    p.working = stream_of(stream);
    p.order.begin(p.working);
    return noted(standing ? standing : f(p));
}

// Of one that works in the legacy default stream, beside streams that do not block, and for whose end the host waits:
// not of one from the device's memory to the device's (CUDA runtime API, API synchronization behavior).
template <class F>
Status on_default_stream(bool host_waits, F f) {
    return on_stream(nullptr, [&](Process& p) {
        if (const Status forbidden = p.captures.host_waits()) return forbidden;
        const Status status = f(p);
        if (host_waits) p.order.host_waits(p.working);
        return status;
    });
}

// Of one that does not wait for launches.
template <class F>
Status with_device(F f) {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    const Status standing = p.ready();
    return noted(standing ? standing : f(p));
}

// Addresses that the emulator gives to global memory.
inline bool is_device_address(const void* p) { return reinterpret_cast<Address>(p) >> 40 == 1; }

}  // namespace fmha
