// How Python calls an extension's functions, and what of CUDA's runtime their host code finds: a record of launches.
#pragma once

#include <functional>
#include <map>

#include "fmha_tensors.h"

namespace fmha {

// An argument or a result: a letter, then what it is.
class Reader {
public:
    explicit Reader(const std::string& text) : in_(text) {}

    template <class T>
    T get() {
        std::string kind;
        if (!(in_ >> kind)) refuse("too few arguments");
        if constexpr (std::is_same_v<T, at::Tensor>) {
            if (kind != "tensor") refuse("an argument is no tensor");
            return tensor();
        } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
            return kind == "none" ? std::nullopt : T(tensor());
        } else if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) {
            std::size_t count = 0;
            in_ >> count;
            T made;
            while (count--) made.push_back(get<at::Tensor>());
            return made;
        } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
            std::size_t count = 0;
            in_ >> count;
            T made;
            while (count--) made.push_back(get<std::int64_t>());
            return made;
        } else if constexpr (std::is_floating_point_v<T>) {
            return static_cast<T>(number<double>());
        } else {
            static_assert(std::is_integral_v<T>, "an argument of this type is not passed: a tensor or a number is");
            if (kind == "real") refuse("an argument is a float where the function takes a whole number");
            return static_cast<T>(number<std::int64_t>());
        }
    }
    void end() {
        std::string left;
        if (in_ >> left) refuse("too many arguments");
    }

private:
    template <class T>
    T number() {
        std::string text;
        in_ >> text;
        return std::is_integral_v<T> ? static_cast<T>(std::stoll(text)) : static_cast<T>(std::stod(text));
    }
    at::Tensor tensor() {
        std::uint64_t address = 0;
        int type = 0;
        std::size_t dims = 0;
        in_ >> address >> type >> dims;
        std::vector<std::int64_t> sizes(dims), strides(dims);
        for (auto& size : sizes) in_ >> size;
        for (auto& stride : strides) in_ >> stride;
        return {address, static_cast<c10::ScalarType>(type), sizes, strides};
    }
    std::istringstream in_;
};

inline void write(std::ostream& out, const at::Tensor& tensor) {
    out << "tensor " << reinterpret_cast<std::uint64_t>(tensor.data_ptr()) << ' '
        << static_cast<int>(tensor.scalar_type()) << ' ' << tensor.dim();
    for (const auto size : tensor.sizes()) out << ' ' << size;
    for (const auto stride : tensor.strides()) out << ' ' << stride;
    out << ' ';
}
template <class T>
void write(std::ostream& out, const std::vector<T>& items) {
    out << "list " << items.size() << ' ';
    for (const auto& item : items) write(out, item);
}
template <class... T>
void write(std::ostream& out, const std::tuple<T...>& items) {
    out << "list " << sizeof...(T) << ' ';
    std::apply([&](const auto&... item) { (write(out, item), ...); }, items);
}
inline void write(std::ostream& out, double value) { out << "real " << value << ' '; }

using Call = std::function<std::string(const std::string&)>;
inline std::map<std::string, Call>& functions() {
    static std::map<std::string, Call> known;
    return known;
}

template <class R, class... A>
Call call_of(std::function<R(A...)> function) {
    return [function](const std::string& text) {
        Reader in(text);
        std::tuple<std::decay_t<A>...> given{in.get<std::decay_t<A>>()...};
        in.end();
        std::ostringstream out;
        if constexpr (std::is_void_v<R>) {
            std::apply(function, given);
            out << "none";
        } else {
            write(out, std::apply(function, given));
        }
        return out.str();
    };
}

struct Definitions {  // what PYBIND11_MODULE's `m` is
    template <class F, class... Rest>
    void def(const char* name, F function, Rest&&...) {
        functions()[name] = call_of(std::function(function));
    }
};

struct Function {
    std::string name;
    int most_shared = -1;  // dynamic shared memory that was asked for; -1: none was
    int any_cluster = 0;   // whether a cluster may be larger than the portable ones
};
inline std::map<const void*, Function>& kernels() {
    static std::map<const void*, Function> known;
    return known;
}
inline std::map<std::string, std::vector<int>>& parameters() {
    static std::map<std::string, std::vector<int>> known;
    return known;
}

struct Shape {
    dim3 grid, block;
    std::size_t shared;
    void* stream;
};
inline std::vector<Shape>& configurations() {
    static std::vector<Shape> pushed;
    return pushed;
}

// A handle that nobody else has, in whatever extension. Its lowest bit says that a stream does not wait for the default
// one; no handle is given back, so that none comes twice.
template <class T>
cudaError_t made(T* out, bool apart) {
    *out = reinterpret_cast<T>(reinterpret_cast<std::uint64_t>(::operator new(16)) | (apart ? 1 : 0));
    return cudaSuccess;
}

inline cudaError_t attribute(const void* stub, cudaFuncAttribute which, int value) {
    constexpr int kMost = 227 * 1024;
    if (which == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > kMost) return cudaErrorInvalidValue;
        kernels()[stub].most_shared = value;
    } else if (which == cudaFuncAttributeNonPortableClusterSizeAllowed) {
        kernels()[stub].any_cluster = value != 0;
    }
    return cudaSuccess;
}

inline cudaError_t launch(const void* stub, const Shape& shape, dim3 cluster, void** arguments) {
    const std::string& name = kernels()[stub].name;
    events() << "launch " << name;
    for (const dim3& size : {shape.grid, shape.block, cluster})
        events() << ' ' << size.x << ' ' << size.y << ' ' << size.z;
    const Function& function = kernels()[stub];
    events() << ' ' << shape.shared << ' ' << number(shape.stream) << ' ' << function.most_shared << ' '
             << function.any_cluster;
    const auto& sizes = parameters()[name];
    for (std::size_t at = 0; at < sizes.size(); ++at) {
        events() << ' ';
        const auto* bytes = static_cast<const unsigned char*>(arguments[at]);
        for (int i = 0; i < sizes[at]; ++i)
            events() << "0123456789abcdef"[bytes[i] >> 4] << "0123456789abcdef"[bytes[i] & 15];
    }
    events() << '\n';
    return cudaSuccess;
}

}  // namespace fmha

namespace pybind11 {
struct arg {
    explicit arg(const char*) {}
    template <class T>
    arg& operator=(T&&) {
        return *this;
    }
};
using module_ = fmha::Definitions;
}  // namespace pybind11
namespace py = pybind11;

#define PYBIND11_MODULE(name, variable)                     \
    static void fmha_define(::fmha::Definitions& variable); \
    static const bool fmha_defined = [] {                   \
        ::fmha::Definitions made;                           \
        fmha_define(made);                                  \
        return true;                                        \
    }();                                                    \
    static void fmha_define(::fmha::Definitions& variable)

#ifndef __CUDA_ARCH__
#define FMHA_RUNTIME extern "C" __attribute__((visibility("default"), weak))
FMHA_RUNTIME void fmha_parameters(const char* name, const int* sizes, int count) {
    fmha::parameters()[name] = std::vector<int>(sizes, sizes + count);
}
// Of a function: what it returned, or why it did not; `events` has what it did meanwhile.
FMHA_RUNTIME int fmha_call(const char* name, const char* given, std::uint64_t next, const char** said,
                           const char** did) {
    static std::string result, events;
    fmha::events().str("");
    fmha::next_buffer() = next;
    int failed = 0;
    try {
        const auto found = fmha::functions().find(name);
        if (found == fmha::functions().end()) fmha::refuse(std::string("the extension has no function ") + name);
        result = found->second(given);
    } catch (const std::exception& error) {
        result = error.what();
        failed = 1;
    }
    events = fmha::events().str();
    *said = result.c_str();
    *did = events.c_str();
    return failed;
}
FMHA_RUNTIME const char* fmha_functions() {
    static std::string names;
    names.clear();
    for (const auto& [name, call] : fmha::functions()) names += name + "\n";
    return names.c_str();
}

FMHA_RUNTIME void** __cudaRegisterFatBinary(void*) {
    static void* handle;
    return &handle;
}
FMHA_RUNTIME void __cudaRegisterFatBinaryEnd(void**) {}
FMHA_RUNTIME void __cudaUnregisterFatBinary(void**) {}
FMHA_RUNTIME char __cudaInitModule(void**) { return 1; }
FMHA_RUNTIME void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
FMHA_RUNTIME void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, uint3*, uint3*, dim3*,
                                         dim3*, int*) {
    fmha::kernels()[stub].name = name;
}
FMHA_RUNTIME unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, CUstream_st* stream) {
    fmha::configurations().push_back({grid, block, shared, stream});
    return 0;
}
FMHA_RUNTIME cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
    const fmha::Shape shape = fmha::configurations().back();
    fmha::configurations().pop_back();
    *grid = shape.grid;
    *block = shape.block;
    *shared = shape.shared;
    *static_cast<void**>(stream) = shape.stream;
    return cudaSuccess;
}
FMHA_RUNTIME cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* stub) {
    *out = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
    return cudaSuccess;
}
FMHA_RUNTIME cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                            std::size_t shared, cudaStream_t stream) {
    return fmha::launch(kernel, {grid, block, shared, stream}, dim3(1, 1, 1), arguments);
}
extern "C" __attribute__((weak)) cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments,
                                                              std::size_t shared, cudaStream_t stream) {
    return fmha::launch(stub, {grid, block, shared, stream}, dim3(1, 1, 1), arguments);
}
extern "C" __attribute__((weak)) cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* given, const void* stub,
                                                                 void** arguments) {
    dim3 cluster(1, 1, 1);
    for (unsigned at = 0; at < given->numAttrs; ++at) {
        if (given->attrs[at].id != cudaLaunchAttributeClusterDimension) return cudaErrorNotSupported;
        const auto& size = given->attrs[at].val.clusterDim;
        cluster = dim3(size.x, size.y, size.z);
    }
    return fmha::launch(stub, {given->gridDim, given->blockDim, given->dynamicSmemBytes, given->stream}, cluster,
                        arguments);
}
#define FMHA_SAYS(signature, ...)                            \
    extern "C" __attribute__((weak)) cudaError_t signature { \
        __VA_ARGS__;                                         \
        return cudaSuccess;                                  \
    }
FMHA_SAYS(cudaGetLastError())
FMHA_SAYS(cudaPeekAtLastError())
FMHA_SAYS(cudaDeviceSynchronize(), fmha::events() << "wait\n")
FMHA_SAYS(cudaStreamSynchronize(cudaStream_t stream), fmha::events() << "wait_stream " << fmha::number(stream) << '\n')
FMHA_SAYS(cudaStreamCreate(cudaStream_t* out), return fmha::made(out, false))
FMHA_SAYS(cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags),
          return fmha::made(out, flags& cudaStreamNonBlocking))
FMHA_SAYS(cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int),
          return fmha::made(out, flags& cudaStreamNonBlocking))
FMHA_SAYS(cudaStreamDestroy(cudaStream_t))
FMHA_SAYS(cudaEventCreate(cudaEvent_t* out), return fmha::made(out, false))
FMHA_SAYS(cudaEventCreateWithFlags(cudaEvent_t* out, unsigned), return fmha::made(out, false))
FMHA_SAYS(cudaEventDestroy(cudaEvent_t))
FMHA_SAYS(cudaEventRecord(cudaEvent_t event, cudaStream_t stream),
          fmha::events() << "record " << fmha::number(event) << ' ' << fmha::number(stream) << '\n')
FMHA_SAYS(cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned),
          fmha::events() << "stream_waits " << fmha::number(stream) << ' ' << fmha::number(event) << '\n')
FMHA_SAYS(cudaEventSynchronize(cudaEvent_t event), fmha::events() << "wait_event " << fmha::number(event) << '\n')
FMHA_SAYS(cudaFuncSetAttribute(const void* stub, cudaFuncAttribute which, int value),
          return fmha::attribute(stub, which, value))
FMHA_SAYS(cudaGetDevice(int* out), *out = 0)
FMHA_SAYS(cudaSetDevice(int))
FMHA_SAYS(cudaMemset(void* to, int value, std::size_t bytes),
          fmha::fill(reinterpret_cast<std::uint64_t>(to), 1, value & 255, bytes))
FMHA_SAYS(cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream),
          fmha::fill(reinterpret_cast<std::uint64_t>(to), 1, value & 255, bytes, stream))
FMHA_SAYS(cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream),
          if (kind != cudaMemcpyDeviceToDevice) return cudaErrorNotSupported;
          fmha::copy(reinterpret_cast<std::uint64_t>(to), reinterpret_cast<std::uint64_t>(from), bytes, stream))
extern "C" __attribute__((weak)) const char* cudaGetErrorString(cudaError_t) { return "no error"; }
#endif

// What stands for torch's own fills and copies, and for cudaMemset.
extern "C" __global__ void fmha_fill(char* to, unsigned long long pattern, int size, long long bytes) {
    const long long at = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (at < bytes) to[at] = static_cast<char>(pattern >> 8 * (at % size));
}
extern "C" __global__ void fmha_copy(char* to, const char* from, long long bytes) {
    const long long at = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (at < bytes) to[at] = from[at];
}
