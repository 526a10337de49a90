// The driver API as far as programs need it beside the runtime: modules loaded by hand, launches, memory, and the
// lookup of functions by name. Its handles are the runtime's.
#include <dlfcn.h>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "cuda_copy.hpp"
#include "cuda_launch.hpp"

namespace fmha {
Status device_attribute(int* out, int number, int device);
}

using namespace fmha;

// The runtime's, which mean the same.
FMHA_EXPORT Status cudaDeviceSynchronize();
FMHA_EXPORT Status cudaDeviceGetLimit(std::size_t*, int);
FMHA_EXPORT Status cudaDeviceSetLimit(int, std::size_t);
FMHA_EXPORT Status cudaMemset2D(void*, std::size_t, int, std::size_t, std::size_t);
FMHA_EXPORT Status cudaMalloc(void**, std::size_t);
FMHA_EXPORT Status cudaMallocAsync(void**, std::size_t, void*);
FMHA_EXPORT Status cudaMallocFromPoolAsync(void**, std::size_t, void*, void*);
FMHA_EXPORT Status cudaFreeAsync(void*, void*);
FMHA_EXPORT Status cudaMemcpy(void*, const void*, std::size_t, int);
FMHA_EXPORT Status cudaMemcpyAsync(void*, const void*, std::size_t, int, void*);
FMHA_EXPORT Status cudaMallocManaged(void**, std::size_t, unsigned);
FMHA_EXPORT Status cudaHostAlloc(void**, std::size_t, unsigned);
FMHA_EXPORT Status cudaMallocPitch(void**, std::size_t*, std::size_t, std::size_t);
FMHA_EXPORT Status cudaFree(void*);
FMHA_EXPORT Status cudaFreeHost(void*);
FMHA_EXPORT Status cudaMemGetInfo(std::size_t*, std::size_t*);
FMHA_EXPORT Status cudaStreamCreateWithFlags(void**, unsigned);
FMHA_EXPORT Status cudaStreamCreateWithPriority(void**, unsigned, int);
FMHA_EXPORT Status cudaStreamDestroy(void*);
FMHA_EXPORT Status cudaStreamSynchronize(void*);
FMHA_EXPORT Status cudaStreamQuery(void*);
FMHA_EXPORT Status cudaStreamWaitEvent(void*, void*, unsigned);
FMHA_EXPORT Status cudaEventCreateWithFlags(void**, unsigned);
FMHA_EXPORT Status cudaEventDestroy(void*);
FMHA_EXPORT Status cudaEventRecord(void*, void*);
FMHA_EXPORT Status cudaEventSynchronize(void*);
FMHA_EXPORT Status cudaEventQuery(void*);
FMHA_EXPORT Status cudaEventElapsedTime(float*, void*, void*);
FMHA_EXPORT Status cudaDriverGetVersion(int*);

namespace {

int context;  // the one there is: its address is the handle

Status load_image(Process& p, void** out, std::vector<char> image) {
    auto* module = new Module;
    module->own = std::move(image);
    module->image = module->own.data();
    module->size = module->own.size();
    const Status status = p.load(*module);
    if (status) {
        delete module;
        return status;
    }
    p.modules.insert(module);
    *out = module;
    return kSuccess;
}

std::size_t image_size(const char* image) {
    if (std::memcmp(image, "\x50\xed\x55\xba", 4) != 0 && std::memcmp(image,
                                                                      "\x7f"
                                                                      "ELF",
                                                                      4) != 0)
        return std::strlen(image);  // PTX
    std::uint16_t header = 0;
    std::uint64_t rest = 0;
    std::memcpy(&header, image + 6, sizeof header);
    std::memcpy(&rest, image + 8, sizeof rest);
    return image[0] == 0x7f ? 64 : header + rest;  // of a cubin its header, by which it is refused
}

Status load_data(void** out, const void* image) {
    return on_device([&](Process& p) {
        const char* bytes = static_cast<const char*>(image);
        if (!out || !bytes) return Status{kInvalidValue};
        const int magic = 0x466243b1;  // the wrapper that nvcc puts around a fat binary
        if (std::memcmp(bytes, &magic, sizeof magic) == 0) std::memcpy(&bytes, bytes + 8, sizeof bytes);
        return load_image(p, out, {bytes, bytes + image_size(bytes)});
    });
}

Status load_file(void** out, const char* path) {
    return on_device([&](Process& p) {
        std::ifstream file(path, std::ios::binary);
        if (!file) return Status{kFileNotFound};
        return load_image(p, out, {std::istreambuf_iterator<char>(file), {}});
    });
}

Status function_of(void** out, void* module, const char* name) {
    return with_device([&](Process& p) {
        auto* m = static_cast<Module*>(module);
        if (!p.modules.contains(m)) return Status{kInvalidHandle};
        for (const void* known : p.functions)
            if (const auto* f = static_cast<const Function*>(known); f->module == m && f->name == name) {
                *out = const_cast<void*>(known);
                return Status{kSuccess};
            }
        auto function = std::make_unique<Function>();
        function->module = m;
        function->name = name;
        if (const Status status = p.resolve(*function)) return status == kInvalidFunction ? Status{kNotFound} : status;
        *out = function.get();
        p.functions.insert(function.release());
        return Status{kSuccess};
    });
}

Status global_of(Address* out, std::size_t* size, void* module, const char* name) {
    return with_device([&](Process& p) {
        if (!p.modules.contains(static_cast<Module*>(module))) return Status{kInvalidHandle};
        Variable v{static_cast<Module*>(module), name};
        const Status status = p.resolve(v);
        if (status) return status == kInvalidSymbol ? Status{kNotFound} : status;
        if (out) *out = v.address;
        if (size) *size = v.size;
        return Status{kSuccess};
    });
}

// CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE and _END.
std::span<const char> packed(void** extra) {
    const char* data = nullptr;
    std::size_t size = 0;
    for (; extra && *extra; extra += 2) {
        if (*extra == reinterpret_cast<void*>(1)) data = static_cast<const char*>(extra[1]);
        if (*extra == reinterpret_cast<void*>(2)) size = *static_cast<std::size_t*>(extra[1]);
    }
    return {data, data ? size : 0};
}

Status start(void* function, const Shape& shape, void** arguments, void** extra) {
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    return launch(p, p.function(function), shape, arguments, packed(extra));
}

void* pointer(Address a) { return reinterpret_cast<void*>(a); }

Status flat(void* to, const void* from, std::size_t n, int kind) { return cudaMemcpy(to, from, n, kind); }

Status repeat(Address to, std::size_t n, unsigned value, unsigned width, void* s = nullptr) {
    return on_stream(s, [&](Process& p) { return fill(p, {pointer(to), n * width, 0}, {n * width}, value, width); });
}

Status repeat_in(void* s, Address to, std::size_t n, unsigned value, unsigned width) {
    return in_stream(s, NodeKind::fill, [=](void* at) { return repeat(to, n, value, width, at); });
}

Status symbol(const char* name, void** out, int* found) {
    Dl_info self{};
    dladdr(reinterpret_cast<void*>(&image_size), &self);
    void* const library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *out = nullptr;
    for (const char* version : {"_v4", "_v3", "_v2", ""})
        if (!*out) *out = dlsym(library, (std::string(name) + version).c_str());
    if (found) *found = *out ? 0 : 1;  // or: not found
    return kSuccess;
}

}  // namespace

// Functions by name

FMHA_EXPORT Status cudaGetDriverEntryPoint(const char* name, void** out, unsigned long long, int* found) {
    return noted(name && out ? symbol(name, out, found) : kInvalidValue);
}
FMHA_EXPORT Status cudaGetDriverEntryPointByVersion(const char* name, void** out, unsigned, unsigned long long,
                                                    int* found) {
    return cudaGetDriverEntryPoint(name, out, 0, found);
}
FMHA_EXPORT Status cuGetProcAddress_v2(const char* name, void** out, int, std::uint64_t, int* found) {
    if (!name || !out) return kInvalidValue;
    const Status status = symbol(name, out, found);
    return *out ? status : Status{kNotFound};
}
// What it gives is not documented, but the runtime that nvcc links unless told otherwise begins with it.
FMHA_EXPORT Status cuGetExportTable(const void**, const void*) {
    return Process::the().refuse("a statically linked CUDA runtime (compile with: nvcc -cudart shared)");
}
FMHA_ALIAS(cudaGetDriverEntryPoint, _ptsz)
FMHA_ALIAS(cudaGetDriverEntryPointByVersion, _ptsz)

// The device and its context

FMHA_EXPORT Status cuInit(unsigned) {
    return with_device([](Process&) { return Status{kSuccess}; });
}
FMHA_EXPORT Status cuDriverGetVersion(int* out) { return cudaDriverGetVersion(out); }
FMHA_EXPORT Status cuDeviceGet(int* out, int ordinal) {
    *out = 0;
    return ordinal ? kInvalidDevice : kSuccess;
}
FMHA_EXPORT Status cuDeviceGetCount(int* out) {
    *out = 1;
    return kSuccess;
}
FMHA_EXPORT Status cuDeviceGetName(char* out, int size, int) {
    return with_device([&](Process& p) {
        std::snprintf(out, static_cast<std::size_t>(size), "%s", p.device.name.c_str());
        return Status{kSuccess};
    });
}
FMHA_EXPORT Status cuDeviceGetAttribute(int* out, int number, int device) {
    return device_attribute(out, number, device);
}
FMHA_EXPORT Status cuDeviceComputeCapability(int* major, int* minor, int) {
    return with_device([&](Process& p) {
        *major = p.device.major;
        *minor = p.device.minor;
        return Status{kSuccess};
    });
}
FMHA_EXPORT Status cuDeviceTotalMem_v2(std::size_t* out, int) {
    return with_device([&](Process& p) {
        *out = p.device.memory;
        return Status{kSuccess};
    });
}
FMHA_EXPORT Status cuCtxCreate_v4(void** out, void*, unsigned, int) {
    *out = &context;
    return kSuccess;
}
FMHA_EXPORT Status cuDevicePrimaryCtxRetain(void** out, int) { return cuCtxCreate_v4(out, nullptr, 0, 0); }
FMHA_EXPORT Status cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
FMHA_EXPORT Status cuCtxDestroy_v2(void*) { return kSuccess; }
FMHA_EXPORT Status cuCtxSetCurrent(void*) { return kSuccess; }
FMHA_EXPORT Status cuCtxPushCurrent_v2(void*) { return kSuccess; }
FMHA_EXPORT Status cuCtxPopCurrent_v2(void** out) { return out ? cuCtxCreate_v4(out, nullptr, 0, 0) : kSuccess; }
FMHA_EXPORT Status cuCtxGetCurrent(void** out) { return cuCtxCreate_v4(out, nullptr, 0, 0); }
FMHA_EXPORT Status cuCtxGetDevice(int* out) { return cuDeviceGet(out, 0); }
FMHA_EXPORT Status cuCtxSynchronize() { return cudaDeviceSynchronize(); }
FMHA_EXPORT Status cuCtxGetLimit(std::size_t* out, int limit) { return cudaDeviceGetLimit(out, limit); }
FMHA_EXPORT Status cuCtxSetLimit(int limit, std::size_t value) { return cudaDeviceSetLimit(limit, value); }

// Modules

FMHA_EXPORT Status cuModuleLoad(void** out, const char* path) { return load_file(out, path); }
FMHA_EXPORT Status cuModuleLoadData(void** out, const void* image) { return load_data(out, image); }
FMHA_EXPORT Status cuModuleLoadDataEx(void** out, const void* image, unsigned, void*, void*) {
    return load_data(out, image);
}
FMHA_EXPORT Status cuModuleLoadFatBinary(void** out, const void* image) { return load_data(out, image); }
FMHA_EXPORT Status cuModuleUnload(void*) { return kSuccess; }
FMHA_EXPORT Status cuModuleGetFunction(void** out, void* module, const char* name) {
    return function_of(out, module, name);
}
FMHA_EXPORT Status cuModuleGetGlobal_v2(Address* out, std::size_t* size, void* module, const char* name) {
    return global_of(out, size, module, name);
}
FMHA_EXPORT Status cuLibraryLoadData(void** out, const void* image, void*, void*, unsigned, void*, void*, unsigned) {
    return load_data(out, image);
}
FMHA_EXPORT Status cuLibraryLoadFromFile(void** out, const char* path, void*, void*, unsigned, void*, void*, unsigned) {
    return load_file(out, path);
}
FMHA_EXPORT Status cuLibraryUnload(void*) { return kSuccess; }
FMHA_EXPORT Status cuLibraryGetKernel(void** out, void* library, const char* name) {
    return function_of(out, library, name);
}
FMHA_EXPORT Status cuLibraryGetModule(void** out, void* library) {
    *out = library;
    return kSuccess;
}
FMHA_EXPORT Status cuLibraryGetGlobal(Address* out, std::size_t* size, void* library, const char* name) {
    return global_of(out, size, library, name);
}
FMHA_EXPORT Status cuKernelGetFunction(void** out, void* kernel) {
    *out = kernel;
    return kSuccess;
}
FMHA_EXPORT Status cudaLibraryLoadData(void** out, const void* image, void*, void*, unsigned, void*, void*, unsigned) {
    return load_data(out, image);
}
FMHA_EXPORT Status cudaLibraryLoadFromFile(void** out, const char* path, void*, void*, unsigned, void*, void*,
                                           unsigned) {
    return load_file(out, path);
}
FMHA_EXPORT Status cudaLibraryUnload(void*) { return kSuccess; }
FMHA_EXPORT Status cudaLibraryGetKernel(void** out, void* library, const char* name) {
    return function_of(out, library, name);
}
FMHA_EXPORT Status cudaLibraryGetGlobal(void** out, std::size_t* size, void* library, const char* name) {
    return global_of(reinterpret_cast<Address*>(out), size, library, name);
}

// Kernels

FMHA_EXPORT Status cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                  unsigned shared, void* s, void** arguments, void** extra) {
    return start(f, {{gx, gy, gz}, {bx, by, bz}, shared, s}, arguments, extra);
}
FMHA_EXPORT Status cuLaunchCooperativeKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                             unsigned bz, unsigned shared, void* s, void** arguments) {
    return start(f, {{gx, gy, gz}, {bx, by, bz}, shared, s, {0, 0, 0}, true}, arguments, nullptr);
}
FMHA_EXPORT Status cuLaunchKernelEx(const DriverLaunchConfig* c, void* f, void** arguments, void** extra) {
    if (!c) return kInvalidValue;
    Process& p = Process::the();
    std::lock_guard lock(p.mutex);
    Shape shape{c->grid, c->block, c->shared_bytes, c->stream};
    const Status status = read_attributes(p, {c->attributes, c->count}, shape);
    return status ? status : start(f, shape, arguments, extra);
}
FMHA_EXPORT Status cuFuncSetAttribute(void* f, int attribute, int value) {
    return with_device([&](Process& p) { return set_attribute(p, p.function(f), attribute, value); });
}
FMHA_EXPORT Status cuKernelSetAttribute(int attribute, int value, void* f, int) {
    return cuFuncSetAttribute(f, attribute, value);
}
FMHA_EXPORT Status cuFuncSetCacheConfig(void*, int) { return kSuccess; }
FMHA_EXPORT Status cuFuncGetAttribute(int* out, int attribute, void* f) {
    return with_device([&](Process& p) {
        FunctionAttributes a;
        if (const Status status = attributes_of(p, p.function(f), a)) return status;
        const int values[] = {a.max_threads,
                              static_cast<int>(a.shared_static),
                              static_cast<int>(a.constant),
                              static_cast<int>(a.local),
                              a.registers,
                              a.ptx_version,
                              a.binary_version,
                              a.cache_mode,
                              a.max_dynamic_shared,
                              a.carveout,
                              a.cluster_must_be_set,
                              a.cluster_width,
                              a.cluster_height,
                              a.cluster_depth,
                              a.non_portable_cluster,
                              a.cluster_policy};
        if (attribute < 0 || attribute >= static_cast<int>(std::size(values))) return Status{kInvalidValue};
        *out = values[attribute];
        return Status{kSuccess};
    });
}
FMHA_EXPORT Status cuKernelGetAttribute(int* out, int attribute, void* f, int) {
    return cuFuncGetAttribute(out, attribute, f);
}
FMHA_EXPORT Status cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, void* f, int threads, std::size_t shared) {
    return with_device([&](Process& p) { return occupancy(p, p.function(f), threads, shared, *out); });
}
FMHA_EXPORT Status cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, void* f, int threads,
                                                                        std::size_t shared, unsigned) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(out, f, threads, shared);
}
FMHA_EXPORT Status cuOccupancyMaxActiveClusters(int* out, void* f, const DriverLaunchConfig* c) {
    return with_device([&](Process& p) {
        Shape shape{c->grid, c->block, c->shared_bytes, c->stream};
        if (const Status status = read_attributes(p, {c->attributes, c->count}, shape)) return status;
        return resident(p, p.function(f), shape, *out);
    });
}

// Memory

FMHA_EXPORT Status cuMemAlloc_v2(Address* out, std::size_t size) {
    return size ? cudaMalloc(reinterpret_cast<void**>(out), size) : kInvalidValue;
}
FMHA_EXPORT Status cuMemAllocAsync(Address* out, std::size_t size, void* s) {
    return size ? cudaMallocAsync(reinterpret_cast<void**>(out), size, s) : kInvalidValue;
}
FMHA_EXPORT Status cuMemAllocFromPoolAsync(Address* out, std::size_t size, void* pool, void* s) {
    return size ? cudaMallocFromPoolAsync(reinterpret_cast<void**>(out), size, pool, s) : kInvalidValue;
}
FMHA_EXPORT Status cuMemAllocManaged(Address* out, std::size_t size, unsigned flags) {
    return cudaMallocManaged(reinterpret_cast<void**>(out), size, flags);
}
FMHA_EXPORT Status cuMemAllocPitch_v2(Address* out, std::size_t* pitch, std::size_t width, std::size_t height,
                                      unsigned) {
    return cudaMallocPitch(reinterpret_cast<void**>(out), pitch, width, height);
}
FMHA_EXPORT Status cuMemFree_v2(Address address) { return cudaFree(pointer(address)); }
FMHA_EXPORT Status cuMemFreeAsync(Address address, void* s) { return cudaFreeAsync(pointer(address), s); }
FMHA_EXPORT Status cuMemHostAlloc(void** out, std::size_t size, unsigned flags) {
    return cudaHostAlloc(out, size, flags);
}
FMHA_EXPORT Status cuMemAllocHost_v2(void** out, std::size_t size) { return cudaHostAlloc(out, size, 0); }
FMHA_EXPORT Status cuMemFreeHost(void* p) { return cudaFreeHost(p); }
FMHA_EXPORT Status cuMemGetInfo_v2(std::size_t* free, std::size_t* total) { return cudaMemGetInfo(free, total); }
FMHA_EXPORT Status cuMemGetAddressRange_v2(Address* base, std::size_t* size, Address address) {
    return with_device([&](Process& p) {
        Process::Place found;
        if (!p.find(pointer(address), found)) return Status{kNotFound};
        if (base) *base = found.base;
        if (size) *size = found.size;
        return Status{kSuccess};
    });
}

namespace {

template <class T>
Status put(void* out, T value) {
    std::memcpy(out, &value, sizeof value);
    return kSuccess;
}

// CUpointer_attribute, as far as it has a meaning without a GPU.
Status pointer_attribute(Process& p, void* out, int attribute, const Process::Place& found) {
    switch (attribute) {
        case 1: return put(out, static_cast<void*>(&context));
        case 2: return put(out, found.kind == Kind::host || found.kind == Kind::registered ? 1u : 2u);
        case 3: return put(out, found.at);
        case 4: return found.host ? put(out, found.host) : Status{kInvalidValue};
        case 6: return put(out, 1);  // synchronous copies: all are
        case 7: return put(out, found.base);
        case 8: return put(out, static_cast<unsigned>(found.kind == Kind::managed));
        case 9: return put(out, 0);
        case 11: return put(out, found.base);
        case 12: return put(out, found.size);
        case 13: return put(out, 1u);
        default: return p.refuse("cuPointerGetAttribute of attribute " + std::to_string(attribute));
    }
}

// What cuPointerGetAttributes says of an address that CUDA does not know.
Status unknown_attribute(void* out, int attribute) {
    switch (attribute) {
        case 1:
        case 3:
        case 4:
        case 7:
        case 11:
        case 12: return put(out, Address{0});
        case 9: return put(out, -2);
        default: return put(out, 0u);
    }
}

}  // namespace

FMHA_EXPORT Status cuPointerGetAttribute(void* out, int attribute, Address address) {
    return with_device([&](Process& p) {
        Process::Place found;
        if (!out || !p.find(pointer(address), found)) return Status{kInvalidValue};
        return pointer_attribute(p, out, attribute, found);
    });
}

FMHA_EXPORT Status cuPointerGetAttributes(unsigned count, const int* attributes, void** out, Address address) {
    return with_device([&](Process& p) {
        if (!count || !attributes || !out) return Status{kInvalidValue};
        Process::Place found;
        const bool known = p.find(pointer(address), found);
        for (unsigned n = 0; n < count; ++n) {
            Status status = known ? pointer_attribute(p, out[n], attributes[n], found) : kInvalidValue;
            if (status == kInvalidValue) status = unknown_attribute(out[n], attributes[n]);
            if (status) return status;
        }
        return Status{kSuccess};
    });
}
FMHA_EXPORT Status cuMemcpyHtoD_v2(Address to, const void* from, std::size_t n) {
    return flat(pointer(to), from, n, kHostToDevice);
}
FMHA_EXPORT Status cuMemcpyDtoH_v2(void* to, Address from, std::size_t n) {
    return flat(to, pointer(from), n, kDeviceToHost);
}
FMHA_EXPORT Status cuMemcpyDtoD_v2(Address to, Address from, std::size_t n) {
    return flat(pointer(to), pointer(from), n, kDeviceToDevice);
}
FMHA_EXPORT Status cuMemcpy(Address to, Address from, std::size_t n) {
    return flat(pointer(to), pointer(from), n, kByAddress);
}
FMHA_EXPORT Status cuMemcpyAsync(Address to, Address from, std::size_t n, void* s) {
    return cudaMemcpyAsync(pointer(to), pointer(from), n, kByAddress, s);
}
FMHA_EXPORT Status cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t n, void* s) {
    return cudaMemcpyAsync(pointer(to), from, n, kHostToDevice, s);
}
FMHA_EXPORT Status cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t n, void* s) {
    return cudaMemcpyAsync(to, pointer(from), n, kDeviceToHost, s);
}
FMHA_EXPORT Status cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t n, void* s) {
    return cudaMemcpyAsync(pointer(to), pointer(from), n, kDeviceToDevice, s);
}
FMHA_EXPORT Status cuMemsetD8_v2(Address to, unsigned char value, std::size_t n) { return repeat(to, n, value, 1); }
FMHA_EXPORT Status cuMemsetD16_v2(Address to, unsigned short value, std::size_t n) { return repeat(to, n, value, 2); }
FMHA_EXPORT Status cuMemsetD32_v2(Address to, unsigned value, std::size_t n) { return repeat(to, n, value, 4); }
FMHA_EXPORT Status cuMemsetD8Async(Address to, unsigned char value, std::size_t n, void* s) {
    return repeat_in(s, to, n, value, 1);
}
FMHA_EXPORT Status cuMemsetD16Async(Address to, unsigned short value, std::size_t n, void* s) {
    return repeat_in(s, to, n, value, 2);
}
FMHA_EXPORT Status cuMemsetD32Async(Address to, unsigned value, std::size_t n, void* s) {
    return repeat_in(s, to, n, value, 4);
}

// Streams and events

FMHA_EXPORT Status cuStreamCreate(void** out, unsigned flags) { return cudaStreamCreateWithFlags(out, flags); }
FMHA_EXPORT Status cuStreamCreateWithPriority(void** out, unsigned flags, int priority) {
    return cudaStreamCreateWithPriority(out, flags, priority);
}
FMHA_EXPORT Status cuStreamDestroy_v2(void* s) { return cudaStreamDestroy(s); }
FMHA_EXPORT Status cuStreamGetCtx(void*, void** out) { return cuCtxGetCurrent(out); }
FMHA_EXPORT Status cuStreamGetCtx_v2(void*, void** out, void** green) {
    if (green) *green = nullptr;
    return cuCtxGetCurrent(out);
}
FMHA_EXPORT Status cuStreamSynchronize(void* s) { return cudaStreamSynchronize(s); }
FMHA_EXPORT Status cuStreamQuery(void* s) { return cudaStreamQuery(s); }
FMHA_EXPORT Status cuStreamWaitEvent(void* s, void* e, unsigned flags) { return cudaStreamWaitEvent(s, e, flags); }
FMHA_EXPORT Status cuEventCreate(void** out, unsigned flags) { return cudaEventCreateWithFlags(out, flags); }
FMHA_EXPORT Status cuEventDestroy_v2(void* e) { return cudaEventDestroy(e); }
FMHA_EXPORT Status cuEventRecord(void* e, void* s) { return cudaEventRecord(e, s); }
FMHA_EXPORT Status cuEventSynchronize(void* e) { return cudaEventSynchronize(e); }
FMHA_EXPORT Status cuEventQuery(void* e) { return cudaEventQuery(e); }
FMHA_EXPORT Status cuEventElapsedTime_v2(float* out, void* from, void* to) {
    return cudaEventElapsedTime(out, from, to);
}
