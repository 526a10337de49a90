// cudaMalloc, cudaMemcpy, cudaMemset and what belongs to them.
#include "arrays.hpp"
#include "cuda_copy.hpp"
#include "pools.hpp"

namespace fmha {
namespace {

constexpr std::size_t kPitch = 512;

Status give(Process& p, void** out, std::size_t size, Kind kind) {
    if (!out) return kInvalidValue;
    Address address = 0;
    const Status status = p.allocate(size, kind, address);
    if (!status) *out = reinterpret_cast<void*>(address);
    return status;
}

Status take_back(Process& p, void* pointer, bool host, bool in_stream = false) {
    if (!pointer) return kSuccess;
    const auto* found = p.holder(pointer);
    if (!found || found->first != reinterpret_cast<Address>(pointer)) return kInvalidValue;
    if (host != (found->second.kind == Kind::host) || found->second.kind == Kind::registered) return kInvalidValue;
    freed_from_pools(found->first);
    return p.release(found->first, in_stream);
}

bool within_device(const void* to, const void* from) { return is_device_address(to) && is_device_address(from); }

Status flat(Process& p, void* to, const void* from, std::size_t n, int kind) {
    return copy(p, {to, n, n}, {const_cast<void*>(from), n, n}, {n}, kind);
}

Status boxed(Process& p, const Copy3D* c) {
    if (!c) return kInvalidValue;
    // Where an array takes part, the extent counts its elements; positions count those of what they are in.
    std::size_t element = 1;
    for (const void* handle : {c->source_array, c->target_array})
        if (const Array* a = array_of(handle)) element = a->element_bytes();
    const Box box{c->extent.width * element, c->extent.height, c->extent.depth};
    const auto side = [&](const void* handle, const Pitched& m, const Extent& at, Side& out) -> Status {
        if (handle) return within(handle, at.width * element, at.height, at.depth, box, out);
        char* base = static_cast<char*>(m.ptr) + at.width + at.height * m.pitch + at.depth * m.pitch * m.ysize;
        out = {base, m.pitch, m.pitch * m.ysize};
        return kSuccess;
    };
    Side to, from;
    if (const Status status = side(c->target_array, c->target, c->target_at, to)) return status;
    if (const Status status = side(c->source_array, c->source, c->source_at, from)) return status;
    return copy(p, to, from, box, c->kind);
}

// The host goes on when a copy from or to memory that is not pinned is done, unless a graph's node does it.
void wait_for_pageable(Process& p, const void* to, const void* from, const void* stream) {
    if (in_graph) return;
    const auto pageable = [&](const void* m) { return !is_device_address(m) && !p.holder(m); };
    if (pageable(to) || pageable(from)) p.order.host_waits(stream_of(stream));
}

Status symbol(Process& p, const void* handle, Variable*& out) {
    auto it = p.variables.find(handle);
    if (it == p.variables.end()) return kInvalidSymbol;
    out = &it->second;
    return p.resolve(it->second);
}

Status to_symbol(const void* s, const void* from, std::size_t n, std::size_t offset, int kind) {
    return on_device([&](Process& p) {
        Variable* v = nullptr;
        if (const Status status = symbol(p, s, v)) return status;
        if (offset > v->size || n > v->size - offset) return Status{kInvalidValue};
        return flat(p, reinterpret_cast<void*>(v->address + offset), from, n, kind);
    });
}

Status from_symbol(void* to, const void* s, std::size_t n, std::size_t offset, int kind) {
    return on_device([&](Process& p) {
        Variable* v = nullptr;
        if (const Status status = symbol(p, s, v)) return status;
        if (offset > v->size || n > v->size - offset) return Status{kInvalidValue};
        return flat(p, to, reinterpret_cast<const void*>(v->address + offset), n, kind);
    });
}

}  // namespace
}  // namespace fmha

using namespace fmha;

// Allocation

FMHA_EXPORT Status cudaMalloc(void** out, std::size_t size) {
    return on_device([&](Process& p) { return give(p, out, size, Kind::device); });
}

FMHA_EXPORT Status cudaMallocFromPoolAsync(void** out, std::size_t size, void* pool, void* s) {
    if (const Status refused = uncaptured(s, "cudaMallocAsync")) return refused;
    return on_stream(s, [&](Process& p) {
        if (pool && !is_pool(pool)) return Status{kInvalidValue};
        const Status status = give(p, out, size, Kind::device);
        if (!status) allocated_in_pool(reinterpret_cast<Address>(*out), size, pool);
        return status;
    });
}

FMHA_EXPORT Status cudaMallocAsync(void** out, std::size_t size, void* s) {
    return cudaMallocFromPoolAsync(out, size, nullptr, s);
}

FMHA_EXPORT Status cudaMallocManaged(void** out, std::size_t size, unsigned) {
    return on_device([&](Process& p) { return give(p, out, size, Kind::managed); });
}

FMHA_EXPORT Status cudaHostAlloc(void** out, std::size_t size, unsigned) {
    return on_device([&](Process& p) { return give(p, out, size, Kind::host); });
}

FMHA_EXPORT Status cudaMallocHost(void** out, std::size_t size) { return cudaHostAlloc(out, size, 0); }

FMHA_EXPORT Status cudaMallocPitch(void** out, std::size_t* pitch, std::size_t width, std::size_t height) {
    if (!pitch) return noted(kInvalidValue);
    *pitch = (width + kPitch - 1) / kPitch * kPitch;
    return cudaMalloc(out, *pitch * height);
}

FMHA_EXPORT Status cudaMalloc3D(Pitched* out, Extent e) {
    if (!out) return noted(kInvalidValue);
    out->xsize = e.width;
    out->ysize = e.height;
    return cudaMallocPitch(&out->ptr, &out->pitch, e.width, e.height * e.depth);
}

FMHA_EXPORT Status cudaFree(void* pointer) {
    return on_device([&](Process& p) { return take_back(p, pointer, false); });
}

FMHA_EXPORT Status cudaFreeAsync(void* pointer, void* s) {
    if (const Status refused = uncaptured(s, "cudaFreeAsync")) return refused;
    return on_stream(s, [&](Process& p) { return take_back(p, pointer, false, true); });
}

FMHA_EXPORT Status cudaFreeHost(void* pointer) {
    return on_device([&](Process& p) { return take_back(p, pointer, true); });
}

// Registered memory stays where it is; kernels reach it by another address, which cudaHostGetDevicePointer gives.
FMHA_EXPORT Status cudaHostRegister(void* pointer, std::size_t size, unsigned) {
    return on_device([&](Process& p) {
        Address address = 0;
        if (!pointer || !size) return Status{kInvalidValue};
        return p.allocate(size, Kind::registered, address, static_cast<char*>(pointer));
    });
}

FMHA_EXPORT Status cudaHostUnregister(void* pointer) {
    return on_device([&](Process& p) {
        const auto* found = p.holder(pointer);
        if (!found || found->second.kind != Kind::registered) return Status{kHostNotRegistered};
        return p.release(found->first);
    });
}

FMHA_EXPORT Status cudaHostGetDevicePointer(void** out, void* pointer, unsigned) {
    return with_device([&](Process& p) {
        const auto* found = p.holder(pointer);
        if (!out || !found || !found->second.host) return Status{kInvalidValue};
        *out = reinterpret_cast<void*>(found->first +
                                       static_cast<Address>(static_cast<char*>(pointer) - found->second.host));
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaHostGetFlags(unsigned* flags, void* pointer) {
    return with_device([&](Process& p) {
        if (!flags || !p.holder(pointer)) return Status{kInvalidValue};
        *flags = 2;  // mapped
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaPointerGetAttributes(PointerAttributes* out, const void* pointer) {
    return with_device([&](Process& p) {
        if (!out) return Status{kInvalidValue};
        *out = {};
        Process::Place found;
        if (!p.find(pointer, found)) {
            out->device = -2;
            out->host_pointer = const_cast<void*>(pointer);
            return Status{kSuccess};
        }
        out->type = found.kind == Kind::device ? 2 : found.kind == Kind::managed ? 3 : 1;
        out->device_pointer = reinterpret_cast<void*>(found.at);
        out->host_pointer = found.host;
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    return with_device([&](Process& p) {
        if (!free || !total) return Status{kInvalidValue};
        std::size_t held = 0;
        for (const auto& [address, a] : p.allocations) held += a.kind == Kind::device ? a.size : 0;
        *total = p.device.memory;
        *free = p.device.memory - std::min(held, p.device.memory);
        return Status{kSuccess};
    });
}

// Hints about memory: where it is makes no difference here.
FMHA_EXPORT Status cudaMemAdvise(const void*, std::size_t, int, std::uint64_t) {
    return with_device([](Process&) { return Status{kSuccess}; });
}

FMHA_EXPORT Status cudaMemPrefetchAsync(const void*, std::size_t, std::uint64_t, unsigned, void*) {
    return with_device([](Process&) { return Status{kSuccess}; });
}

FMHA_EXPORT Status cudaStreamAttachMemAsync(void*, void*, std::size_t, unsigned) {
    return with_device([](Process&) { return Status{kSuccess}; });
}

// Copies

FMHA_EXPORT Status cudaMemcpy(void* to, const void* from, std::size_t n, int kind) {
    return on_default_stream(!within_device(to, from), [&](Process& p) { return flat(p, to, from, n, kind); });
}

FMHA_EXPORT Status cudaMemcpyAsync(void* to, const void* from, std::size_t n, int kind, void* s) {
    return in_stream(s, NodeKind::copy, [=](void* at) {
        return on_stream(at, [&](Process& p) {
            const Status status = flat(p, to, from, n, kind);
            wait_for_pageable(p, to, from, at);
            return status;
        });
    });
}

FMHA_EXPORT Status cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, std::size_t n) {
    return to_device || from_device ? noted(kInvalidDevice) : cudaMemcpy(to, from, n, kByAddress);
}

FMHA_EXPORT Status cudaMemcpyPeerAsync(void* to, int a, const void* from, int b, std::size_t n, void* s) {
    return in_stream(s, NodeKind::copy, [=](void*) { return cudaMemcpyPeer(to, a, from, b, n); });
}

FMHA_EXPORT Status cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                                std::size_t width, std::size_t height, int kind) {
    return on_device([&](Process& p) {
        if (width > to_pitch || width > from_pitch) return Status{kInvalidValue};
        return copy(p, {to, to_pitch, 0}, {const_cast<void*>(from), from_pitch, 0}, {width, height}, kind);
    });
}

FMHA_EXPORT Status cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                                     std::size_t width, std::size_t height, int kind, void* s) {
    return in_stream(s, NodeKind::copy, [=](void* at) {
        return on_stream(at, [&](Process& p) {
            if (width > to_pitch || width > from_pitch) return Status{kInvalidValue};
            const Side source{const_cast<void*>(from), from_pitch, 0};
            const Status status = copy(p, {to, to_pitch, 0}, source, {width, height}, kind);
            wait_for_pageable(p, to, from, at);
            return status;
        });
    });
}

FMHA_EXPORT Status cudaMemcpy3D(const Copy3D* c) {
    return on_device([&](Process& p) { return boxed(p, c); });
}

FMHA_EXPORT Status cudaMemcpy3DAsync(const Copy3D* c, void* s) {
    if (!c) return noted(kInvalidValue);
    return in_stream(s, NodeKind::copy, [given = *c](void*) { return cudaMemcpy3D(&given); });
}

// Symbols

FMHA_EXPORT Status cudaMemcpyToSymbol(const void* s, const void* from, std::size_t n, std::size_t offset, int kind) {
    return to_symbol(s, from, n, offset, kind);
}

FMHA_EXPORT Status cudaMemcpyToSymbolAsync(const void* s, const void* from, std::size_t n, std::size_t offset, int kind,
                                           void* stream) {
    return in_stream(stream, NodeKind::copy, [=](void*) { return to_symbol(s, from, n, offset, kind); });
}

FMHA_EXPORT Status cudaMemcpyFromSymbol(void* to, const void* s, std::size_t n, std::size_t offset, int kind) {
    return from_symbol(to, s, n, offset, kind);
}

FMHA_EXPORT Status cudaMemcpyFromSymbolAsync(void* to, const void* s, std::size_t n, std::size_t offset, int kind,
                                             void* stream) {
    return in_stream(stream, NodeKind::copy, [=](void*) { return from_symbol(to, s, n, offset, kind); });
}

FMHA_EXPORT Status cudaGetSymbolAddress(void** out, const void* s) {
    return with_device([&](Process& p) {
        Variable* v = nullptr;
        const Status status = symbol(p, s, v);
        if (!status) *out = reinterpret_cast<void*>(v->address);
        return status;
    });
}

FMHA_EXPORT Status cudaGetSymbolSize(std::size_t* out, const void* s) {
    return with_device([&](Process& p) {
        Variable* v = nullptr;
        const Status status = symbol(p, s, v);
        if (!status) *out = v->size;
        return status;
    });
}

// Fills

FMHA_EXPORT Status cudaMemset(void* to, int value, std::size_t n) {
    return on_stream(nullptr, [&](Process& p) { return fill(p, {to, n, n}, {n}, static_cast<unsigned>(value)); });
}

FMHA_EXPORT Status cudaMemsetAsync(void* to, int value, std::size_t n, void* s) {
    return in_stream(s, NodeKind::fill, [=](void* at) {
        return on_stream(at, [&](Process& p) { return fill(p, {to, n, n}, {n}, static_cast<unsigned>(value)); });
    });
}

FMHA_EXPORT Status cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height) {
    return on_device(
        [&](Process& p) { return fill(p, {to, pitch, 0}, {width, height}, static_cast<unsigned>(value)); });
}

FMHA_EXPORT Status cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                                     void* s) {
    return in_stream(s, NodeKind::fill, [=](void*) { return cudaMemset2D(to, pitch, value, width, height); });
}

FMHA_EXPORT Status cudaMemset3D(Pitched to, int value, Extent e) {
    return on_device([&](Process& p) {
        return fill(p, {to.ptr, to.pitch, to.pitch * to.ysize}, {e.width, e.height, e.depth},
                    static_cast<unsigned>(value));
    });
}

FMHA_EXPORT Status cudaMemset3DAsync(Pitched to, int value, Extent e, void* s) {
    return in_stream(s, NodeKind::fill, [=](void*) { return cudaMemset3D(to, value, e); });
}

// Under nvcc's --default-stream per-thread.
FMHA_ALIAS(cudaMallocAsync, _ptsz)
FMHA_ALIAS(cudaMallocFromPoolAsync, _ptsz)
FMHA_ALIAS(cudaFreeAsync, _ptsz)
FMHA_ALIAS(cudaMemPrefetchAsync, _ptsz)
FMHA_ALIAS(cudaStreamAttachMemAsync, _ptsz)
FMHA_ALIAS(cudaMemcpy, _ptds)
FMHA_ALIAS(cudaMemcpyAsync, _ptsz)
FMHA_ALIAS(cudaMemcpy2D, _ptds)
FMHA_ALIAS(cudaMemcpy2DAsync, _ptsz)
FMHA_ALIAS(cudaMemcpy3D, _ptds)
FMHA_ALIAS(cudaMemcpy3DAsync, _ptsz)
FMHA_ALIAS(cudaMemcpyToSymbol, _ptds)
FMHA_ALIAS(cudaMemcpyToSymbolAsync, _ptsz)
FMHA_ALIAS(cudaMemcpyFromSymbol, _ptds)
FMHA_ALIAS(cudaMemcpyFromSymbolAsync, _ptsz)
FMHA_ALIAS(cudaMemset, _ptds)
FMHA_ALIAS(cudaMemsetAsync, _ptsz)
FMHA_ALIAS(cudaMemset2D, _ptds)
FMHA_ALIAS(cudaMemset2DAsync, _ptsz)
FMHA_ALIAS(cudaMemset3D, _ptds)
FMHA_ALIAS(cudaMemset3DAsync, _ptsz)
