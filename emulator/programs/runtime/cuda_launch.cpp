#include "cuda_launch.hpp"

#include <algorithm>
#include <cstdlib>

namespace fmha {
namespace {

enum Attribute {
    kCooperative = 2,
    kClusterDimension = 4,
    kProgrammaticSerialization = 6,
    kProgrammaticEvent = 7,
    kDeviceUpdatable = 13,
};
enum FunctionAttribute { kMaxDynamicShared = 8, kCarveout = 9, kNonPortableCluster = 14 };
constexpr std::size_t kSharedWithoutAsking = 48 << 10;

bool launches_block() {
    const char* set = std::getenv("CUDA_LAUNCH_BLOCKING");
    return set && *set && *set != '0';
}

std::size_t product(const Dim3& d) { return std::size_t{d.x} * d.y * d.z; }

}  // namespace

Status read_attributes(Process& p, std::span<const LaunchAttribute> attributes, Shape& shape) {
    for (const LaunchAttribute& a : attributes) switch (a.id) {
            case kCooperative: shape.cooperative = a.flag != 0; break;
            case kClusterDimension: shape.cluster = a.cluster; break;
            case kProgrammaticSerialization: shape.programmatic = a.flag != 0; break;
            case kProgrammaticEvent: return p.refuse("cudaLaunchAttributeProgrammaticEvent");
            case kDeviceUpdatable:
                if (a.flag) return p.refuse("cudaLaunchAttributeDeviceUpdatableKernelNode");
                break;
            default: break;  // hints: where memory is cached, which stream goes first, which clusters would be better
        }
    return kSuccess;
}

namespace {

Status pack(Process& p, Function* function, void** arguments, std::vector<char>& bytes) {
    if (!function) return kInvalidFunction;
    if (const Status status = p.resolve(*function)) return status;
    bytes.resize(function->parameter_bytes);
    if (arguments)
        for (const Parameter& param : function->parameters) {
            std::memcpy(bytes.data() + param.offset, *arguments, param.size);
            ++arguments;
        }
    return kSuccess;
}

Status start(Process& p, Function* function, const Shape& shape, const std::vector<char>& bytes) {
    const bool follows = p.follows_launch(shape.stream);
    if (const Status standing = p.settle()) return standing;
    Request request("launch");
    request.integer(function->id).dims(shape.grid).dims(shape.block).integer(shape.shared_bytes);
    request.integer(function->max_dynamic_shared >= 0).integer(static_cast<unsigned>(function->max_dynamic_shared));
    request.dims(shape.cluster).integer(function->non_portable_cluster).integer(shape.cooperative);
    request.integer(shape.programmatic && follows).bytes(bytes.data(), bytes.size());
    const StreamOrder::Stream stream = stream_of(shape.stream);
    const std::vector<std::uint64_t> beside = p.order.begin(stream);
    request.integer(stream.id).integer(p.order.several()).integer(beside.size());
    for (const std::uint64_t number : beside) request.integer(number);
    p.send_shared(request);
    Reply reply = p.ask(std::move(request));
    if (reply.status) return reply.status;
    p.order.launched(stream, reply.integer());
    p.leave(static_cast<Status>(reply.integer()));
    for (std::uint64_t n = reply.integer(); n; --n) {
        const bool error = reply.integer() != 0;
        p.printed(error, reply.text());
    }
    p.receive_shared(reply);
    p.launched(shape.stream);
    if (!launches_block()) return kSuccess;
    p.order.host_waits();
    return p.settle();
}

Work work_of(Function* function, Shape shape, std::vector<char> bytes) {
    return [function, shape, bytes = std::move(bytes)](void* stream) mutable {
        Process& p = Process::the();
        std::lock_guard lock(p.mutex);
        shape.stream = stream;
        return noted(start(p, function, shape, bytes));
    };
}

}  // namespace

Status launch(Process& p, Function* function, const Shape& shape, void** arguments, std::span<const char> packed) {
    if (const Status standing = p.ready()) return standing;
    if (const Status forbidden = p.captures.works(shape.stream)) return forbidden;
    std::vector<char> bytes(packed.begin(), packed.end());
    if (const Status status = pack(p, function, arguments, bytes)) return status;
    if (p.captures.of(shape.stream))
        return p.captures.add(shape.stream, NodeKind::kernel, work_of(function, shape, std::move(bytes)));
    return start(p, function, shape, bytes);
}

Status launch_later(Process& p, Function* function, const Shape& shape, void** arguments, Work& out) {
    std::vector<char> bytes;
    const Status status = pack(p, function, arguments, bytes);
    if (!status) out = work_of(function, shape, std::move(bytes));
    return status;
}

Status facts_of(Process& p, Function& function, FunctionFacts& out) {
    if (const Status status = p.resolve(function)) return status;
    Reply reply = p.ask(Request("facts").integer(function.id));
    if (reply.status) return reply.status;
    out.shared_static = reply.integer();
    out.local = reply.integer();
    out.constant = reply.integer();
    out.max_threads = static_cast<int>(reply.integer());
    out.registers = static_cast<int>(reply.integer());
    out.ptx_version = static_cast<int>(reply.integer());
    for (unsigned* n : {&out.required_cluster.x, &out.required_cluster.y, &out.required_cluster.z})
        *n = static_cast<unsigned>(reply.integer());
    out.cluster_must_be_set = reply.integer() != 0;
    return kSuccess;
}

Status attributes_of(Process& p, Function* function, FunctionAttributes& out) {
    if (!function) return kInvalidFunction;
    FunctionFacts facts;
    if (const Status status = facts_of(p, *function, facts)) return status;
    out = {};
    out.shared_static = facts.shared_static;
    out.local = facts.local;
    out.constant = facts.constant;
    out.max_threads = facts.max_threads;
    out.registers = facts.registers;
    out.ptx_version = facts.ptx_version;
    out.binary_version = 10 * p.device.major + p.device.minor;
    out.max_dynamic_shared =
        function->max_dynamic_shared >= 0
            ? function->max_dynamic_shared
            : static_cast<int>(kSharedWithoutAsking - std::min(kSharedWithoutAsking, facts.shared_static));
    out.carveout = function->carveout;
    out.cluster_must_be_set = facts.cluster_must_be_set;
    out.cluster_width = static_cast<int>(facts.required_cluster.x);
    out.cluster_height = static_cast<int>(facts.required_cluster.y);
    out.cluster_depth = static_cast<int>(facts.required_cluster.z);
    out.non_portable_cluster = function->non_portable_cluster;
    return kSuccess;
}

Status set_attribute(Process& p, Function* function, int attribute, int value) {
    constexpr int kMostShared = 227 << 10;
    if (!function) return kInvalidFunction;
    switch (attribute) {
        case kMaxDynamicShared: {
            FunctionFacts facts;
            if (const Status status = facts_of(p, *function, facts)) return status;
            if (value < 0 || value > kMostShared - static_cast<int>(facts.shared_static)) return kInvalidValue;
            Request request("permit");
            request.integer(function->id).integer(static_cast<unsigned>(value));
            const Status status = p.ask(std::move(request)).status;
            if (!status) function->max_dynamic_shared = value;
            return status;
        }
        case kCarveout:
            if (value < -1 || value > 100) return kInvalidValue;
            function->carveout = value;
            return kSuccess;
        case kNonPortableCluster: function->non_portable_cluster = value != 0; return kSuccess;
        case 15: return kSuccess;  // how clusters are spread over the device
        case 10:
        case 11:
        case 12:
        case 13: return p.refuse("a cluster required by cudaFuncSetAttribute");
        default: return kInvalidValue;
    }
}

Status resident(Process& p, Function* function, const Shape& shape, int& out) {
    if (!function) return kInvalidFunction;
    if (const Status status = p.resolve(*function)) return status;
    Request request("resident");
    request.integer(function->id).dims(shape.block).integer(shape.shared_bytes).dims(shape.cluster);
    Reply reply = p.ask(std::move(request));
    if (!reply.status) out = static_cast<int>(reply.integer());
    return reply.status;
}

Status occupancy(Process& p, Function* function, int threads, std::size_t shared_bytes, int& out) {
    if (threads <= 0) return kInvalidValue;
    Shape shape;
    shape.block = {static_cast<unsigned>(threads), 1, 1};
    shape.shared_bytes = shared_bytes;
    shape.cluster = {1, 1, 1};
    if (threads > 1024) {
        out = 0;
        return kSuccess;
    }
    const Status status = resident(p, function, shape, out);
    out /= std::max(1, p.device.multiprocessors);
    return status;
}

}  // namespace fmha

using namespace fmha;

// Registration: nvcc's code calls these before main, and again at the end.

namespace {

struct Wrapper {  // what __cudaRegisterFatBinary is given
    int magic, version;
    const char* image;
    const char* const* units;  // of version 2, and a null behind them: what -rdc=true has compiled apart
};
constexpr int kLinked = 2;

std::size_t fat_binary_size(const char* image) {
    std::uint16_t header = 0;
    std::uint64_t rest = 0;
    std::memcpy(&header, image + 6, sizeof header);
    std::memcpy(&rest, image + 8, sizeof rest);
    return header + rest;
}

Module* module_of(void** handle) { return reinterpret_cast<Module*>(handle); }

thread_local std::vector<Shape> configurations;

}  // namespace

FMHA_EXPORT void** __cudaRegisterFatBinary(void* given) {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    auto* module = new Module;
    const auto& wrapper = *static_cast<const Wrapper*>(given);
    module->image = wrapper.image;
    module->size = fat_binary_size(wrapper.image);
    // What the device linker has made of them is machine code: the emulator links them itself.
    if (wrapper.version == kLinked) {
        for (const char* const* unit = wrapper.units; *unit; ++unit)
            module->own.insert(module->own.end(), *unit, *unit + fat_binary_size(*unit));
        module->image = module->own.data();
        module->size = module->own.size();
    }
    p.modules.insert(module);
    return reinterpret_cast<void**>(module);
}

FMHA_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}

// At the program's end, or a library's that is unloaded: calls may come yet, and find what was registered.
FMHA_EXPORT void __cudaUnregisterFatBinary(void**) {}

FMHA_EXPORT void __cudaRegisterFunction(void** handle, const char* stub, char*, const char* name, int, void*, void*,
                                        void*, void*, int*) {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    auto* function = new Function{module_of(handle), name};
    p.stubs[stub] = function;
    p.functions.insert(function);
}

FMHA_EXPORT void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, std::size_t size, int,
                                   int) {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    p.variables[host] = {module_of(handle), name, nullptr, 0, size};
}

FMHA_EXPORT void __cudaRegisterManagedVar(void** handle, void** host, char*, const char* name, int, std::size_t size,
                                          int, int) {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    p.variables[host] = {module_of(handle), name, host, 0, size};
}

// Before the program's first look at a managed variable.
FMHA_EXPORT char __cudaInitModule(void** handle) {
    return with_device([&](Process& p) {
               for (auto& [host, v] : p.variables)
                   if (v.module == module_of(handle) && v.pointer)
                       if (const Status status = p.resolve(v)) return status;
               return Status{kSuccess};
           }) == kSuccess;
}

FMHA_EXPORT Status __cudaGetKernel(void** out, const void* stub) {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    *out = p.function(stub);
    return *out ? kSuccess : noted(kInvalidFunction);
}

FMHA_EXPORT Status cudaGetKernel(void** out, const void* stub) { return __cudaGetKernel(out, stub); }
FMHA_EXPORT Status cudaGetFuncBySymbol(void** out, const void* stub) { return __cudaGetKernel(out, stub); }

// Launches

FMHA_EXPORT unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, std::size_t shared, void* stream) {
    configurations.push_back({grid, block, shared, stream});
    return 0;
}

FMHA_EXPORT Status __cudaPopCallConfiguration(Dim3* grid, Dim3* block, std::size_t* shared, void** stream) {
    if (configurations.empty()) return noted(kMissingConfiguration);
    const Shape& s = configurations.back();
    *grid = s.grid;
    *block = s.block;
    *shared = s.shared_bytes;
    *stream = s.stream;
    configurations.pop_back();
    return kSuccess;
}

namespace {

Status launched(const void* handle, const Shape& shape, void** arguments) {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    return noted(launch(p, p.function(handle), shape, arguments));
}

}  // namespace

FMHA_EXPORT Status cudaLaunchKernel(const void* f, Dim3 grid, Dim3 block, void** arguments, std::size_t shared,
                                    void* s) {
    return launched(f, {grid, block, shared, s}, arguments);
}

FMHA_EXPORT Status __cudaLaunchKernel(void* f, Dim3 grid, Dim3 block, void** arguments, std::size_t shared, void* s) {
    return launched(f, {grid, block, shared, s}, arguments);
}

FMHA_EXPORT Status cudaLaunchCooperativeKernel(const void* f, Dim3 grid, Dim3 block, void** arguments,
                                               std::size_t shared, void* s) {
    return launched(f, {grid, block, shared, s, {0, 0, 0}, true}, arguments);
}

FMHA_EXPORT Status cudaLaunchKernelExC(const LaunchConfig* c, const void* f, void** arguments) {
    if (!c) return noted(kInvalidValue);
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    Shape shape{c->grid, c->block, c->shared_bytes, c->stream};
    const Status status = read_attributes(p, {c->attributes, c->count}, shape);
    return noted(status ? status : launch(p, p.function(f), shape, arguments));
}

FMHA_ALIAS(cudaLaunchKernel, _ptsz)
FMHA_ALIAS(__cudaLaunchKernel, _ptsz)
FMHA_ALIAS(cudaLaunchCooperativeKernel, _ptsz)
FMHA_ALIAS(cudaLaunchKernelExC, _ptsz)

// About kernels

FMHA_EXPORT Status cudaFuncGetAttributes(FunctionAttributes* out, const void* f) {
    return with_device([&](Process& p) { return attributes_of(p, p.function(f), *out); });
}

FMHA_EXPORT Status cudaFuncSetAttribute(const void* f, int attribute, int value) {
    return with_device([&](Process& p) { return set_attribute(p, p.function(f), attribute, value); });
}

FMHA_EXPORT Status cudaFuncSetCacheConfig(const void*, int) { return kSuccess; }
FMHA_EXPORT Status cudaFuncSetSharedMemConfig(const void*, int) { return kSuccess; }

FMHA_EXPORT Status cudaFuncGetName(const char** out, const void* f) {
    return with_device([&](Process& p) {
        const Function* function = p.function(f);
        if (!function || !out) return Status{kInvalidFunction};
        *out = function->name.c_str();
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaFuncGetParamInfo(const void* f, std::size_t index, std::size_t* offset, std::size_t* size) {
    return with_device([&](Process& p) {
        Function* function = p.function(f);
        if (!function) return Status{kInvalidFunction};
        if (const Status status = p.resolve(*function)) return status;
        if (index >= function->parameters.size()) return Status{kInvalidValue};
        if (offset) *offset = function->parameters[index].offset;
        if (size) *size = function->parameters[index].size;
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* out, const void* f, int threads,
                                                                 std::size_t shared) {
    return with_device([&](Process& p) { return occupancy(p, p.function(f), threads, shared, *out); });
}

FMHA_EXPORT Status cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, const void* f, int threads,
                                                                          std::size_t shared, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(out, f, threads, shared);
}

FMHA_EXPORT Status cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* out, const void* f, int ctas, int) {
    return with_device([&](Process& p) {
        Function* function = p.function(f);
        FunctionFacts facts;
        if (!function || ctas <= 0) return Status{kInvalidValue};
        if (const Status status = facts_of(p, *function, facts)) return status;
        const std::size_t each = (std::size_t{228} << 10) / static_cast<std::size_t>(ctas) - 1024;
        *out = std::min(each, std::size_t{227} << 10) - facts.shared_static;
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaOccupancyMaxActiveClusters(int* out, const void* f, const LaunchConfig* c) {
    return with_device([&](Process& p) {
        if (!out || !c) return Status{kInvalidValue};
        Shape shape{c->grid, c->block, c->shared_bytes, c->stream};
        if (const Status status = read_attributes(p, {c->attributes, c->count}, shape)) return status;
        return resident(p, p.function(f), shape, *out);
    });
}

FMHA_EXPORT Status cudaOccupancyMaxPotentialClusterSize(int* out, const void* f, const LaunchConfig* c) {
    return with_device([&](Process& p) {
        const Function* function = p.function(f);
        if (!function || !out || !c || !product(c->block)) return Status{kInvalidValue};
        *out = function->non_portable_cluster ? 16 : 8;
        return Status{kSuccess};
    });
}
