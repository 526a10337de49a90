// cudaMallocArray and its kin, and the copies to and from arrays.
#include "arrays.hpp"

#include <memory>

namespace fmha {
namespace {

constexpr unsigned kKnownFlags = 1 | 2 | 8;  // layered, for surfaces, for gathering

std::map<const void*, std::unique_ptr<Array>>& arrays() {
    static std::map<const void*, std::unique_ptr<Array>> all;
    return all;
}

struct DriverFormat {
    int number, bits, kind;
};
constexpr DriverFormat kDriverFormats[] = {{0x01, 8, 1},  {0x02, 16, 1}, {0x03, 32, 1}, {0x08, 8, 0},
                                           {0x09, 16, 0}, {0x0a, 32, 0}, {0x10, 16, 2}, {0x20, 32, 2}};

int driver_format(const ChannelFormat& f) {
    for (const DriverFormat& d : kDriverFormats)
        if (d.bits == f.x && d.kind == f.kind) return d.number;
    return 0;
}

Status make(Process& p, void** out, const ChannelFormat* format, const Extent& e, unsigned flags) {
    if (!out || !format || !e.width) return kInvalidValue;
    if (flags & ~kKnownFlags) return p.refuse("a CUDA array that is a cube map, sparse, or mapped later");
    if (format->kind > 2) return p.refuse("a CUDA array of a compressed or normalized format");
    auto array = std::make_unique<Array>(Array{*format, e.width, e.height, e.depth, flags});
    if (texel_of(*format) < 0 || (array->layered() && !e.depth)) return kInvalidValue;
    if (e.depth && !e.height && !array->layered()) return kInvalidValue;
    const std::size_t size = array->plane() * (e.depth ? e.depth : 1);
    if (const Status status = p.allocate(size, Kind::array, array->address)) return status;
    *out = array.get();
    arrays().emplace(*out, std::move(array));
    return kSuccess;
}

Status drop(Process& p, const void* handle) {
    const auto found = arrays().find(handle);
    if (found == arrays().end()) return handle ? kInvalidHandle : kSuccess;
    const Address address = found->second->address;
    arrays().erase(found);
    return p.release(address);
}

Status to_array(Process& p, void* a, std::size_t x, std::size_t y, const void* from, std::size_t pitch, const Box& box,
                int kind) {
    Side to;
    if (pitch < box.width) return kInvalidValue;
    if (const Status status = within(a, x, y, 0, box, to)) return status;
    return copy(p, to, {const_cast<void*>(from), pitch, 0}, box, kind);
}

Status from_array(Process& p, void* to, std::size_t pitch, const void* a, std::size_t x, std::size_t y, const Box& box,
                  int kind) {
    Side from;
    if (pitch < box.width) return kInvalidValue;
    if (const Status status = within(a, x, y, 0, box, from)) return status;
    return copy(p, {to, pitch, 0}, from, box, kind);
}

// So many bytes from a place in an array on, over the ends of its rows.
Status run(const void* handle, std::size_t x, std::size_t y, std::size_t n, Side& out) {
    const Array* a = array_of(handle);
    if (!a) return kInvalidHandle;
    const std::size_t begin = y * a->pitch() + x;
    if (x > a->pitch() || begin > a->plane() || n > a->plane() - begin) return kInvalidValue;
    out = {reinterpret_cast<void*>(a->address + begin), n, n};
    return kSuccess;
}

}  // namespace

const Array* array_of(const void* handle) {
    const auto found = arrays().find(handle);
    return found == arrays().end() ? nullptr : found->second.get();
}

Status within(const void* handle, std::size_t x, std::size_t y, std::size_t z, const Box& box, Side& out) {
    const Array* a = array_of(handle);
    if (!a) return kInvalidHandle;
    const auto fits = [](std::size_t at, std::size_t n, std::size_t all) { return at <= all && n <= all - at; };
    if (!fits(x, box.width, a->pitch()) || !fits(y, box.height, a->height ? a->height : 1) ||
        !fits(z, box.depth, a->depth ? a->depth : 1))
        return kInvalidValue;
    out = {reinterpret_cast<void*>(a->address + z * a->plane() + y * a->pitch() + x), a->pitch(), a->plane()};
    return kSuccess;
}

int texel_of(const ChannelFormat& f) {
    for (const int bits : {f.y, f.z, f.w})
        if (bits && bits != f.x) return -1;
    if ((!f.y && f.z) || (f.z > 0) != (f.w > 0)) return -1;             // one, two or four channels
    constexpr int kNumbers[3][3] = {{1, 3, 6}, {0, 2, 5}, {-1, 4, 7}};  // of emulator/texture_objects.py
    const int size = f.x == 8 ? 0 : f.x == 16 ? 1 : f.x == 32 ? 2 : -1;
    return size < 0 || f.kind < 0 || f.kind > 2 ? -1 : kNumbers[f.kind][size];
}

bool format_of(int number, unsigned channels, ChannelFormat& out) {
    for (const DriverFormat& d : kDriverFormats) {
        if (d.number != number || (channels != 1 && channels != 2 && channels != 4)) continue;
        const auto bits = [&](unsigned n) { return n < channels ? d.bits : 0; };
        out = {d.bits, bits(1), bits(2), bits(3), d.kind};
        return true;
    }
    return false;
}

void forget_arrays() { arrays().clear(); }

}  // namespace fmha

using namespace fmha;

// Arrays

FMHA_EXPORT Status cudaMalloc3DArray(void** out, const ChannelFormat* format, Extent e, unsigned flags) {
    return on_device([&](Process& p) { return make(p, out, format, e, flags); });
}

FMHA_EXPORT Status cudaMallocArray(void** out, const ChannelFormat* format, std::size_t width, std::size_t height,
                                   unsigned flags) {
    return cudaMalloc3DArray(out, format, {width, height, 0}, flags);
}

FMHA_EXPORT Status cudaFreeArray(void* array) {
    return on_device([&](Process& p) { return drop(p, array); });
}

FMHA_EXPORT Status cudaArrayGetInfo(ChannelFormat* format, Extent* e, unsigned* flags, void* array) {
    return with_device([&](Process&) {
        const Array* a = array_of(array);
        if (!a) return Status{kInvalidHandle};
        if (format) *format = a->format;
        if (e) *e = {a->width, a->height, a->depth};
        if (flags) *flags = a->flags;
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cudaGetChannelDesc(ChannelFormat* format, const void* array) {
    return cudaArrayGetInfo(format, nullptr, nullptr, const_cast<void*>(array));
}

// Copies

FMHA_EXPORT Status cudaMemcpy2DToArray(void* a, std::size_t x, std::size_t y, const void* from, std::size_t pitch,
                                       std::size_t width, std::size_t height, int kind) {
    return on_device([&](Process& p) { return to_array(p, a, x, y, from, pitch, {width, height}, kind); });
}

FMHA_EXPORT Status cudaMemcpy2DToArrayAsync(void* a, std::size_t x, std::size_t y, const void* from, std::size_t pitch,
                                            std::size_t width, std::size_t height, int kind, void* s) {
    return in_stream(s, NodeKind::copy,
                     [=](void*) { return cudaMemcpy2DToArray(a, x, y, from, pitch, width, height, kind); });
}

FMHA_EXPORT Status cudaMemcpy2DFromArray(void* to, std::size_t pitch, const void* a, std::size_t x, std::size_t y,
                                         std::size_t width, std::size_t height, int kind) {
    return on_device([&](Process& p) { return from_array(p, to, pitch, a, x, y, {width, height}, kind); });
}

FMHA_EXPORT Status cudaMemcpy2DFromArrayAsync(void* to, std::size_t pitch, const void* a, std::size_t x, std::size_t y,
                                              std::size_t width, std::size_t height, int kind, void* s) {
    return in_stream(s, NodeKind::copy,
                     [=](void*) { return cudaMemcpy2DFromArray(to, pitch, a, x, y, width, height, kind); });
}

FMHA_EXPORT Status cudaMemcpy2DArrayToArray(void* to, std::size_t to_x, std::size_t to_y, const void* from,
                                            std::size_t x, std::size_t y, std::size_t width, std::size_t height,
                                            int kind) {
    return on_device([&](Process& p) {
        Side source;
        const Box box{width, height};
        if (const Status status = within(from, x, y, 0, box, source)) return status;
        return to_array(p, to, to_x, to_y, source.base, source.pitch, box, kind);
    });
}

FMHA_EXPORT Status cudaMemcpyToArray(void* a, std::size_t x, std::size_t y, const void* from, std::size_t n, int kind) {
    return on_device([&](Process& p) {
        Side to;
        if (const Status status = run(a, x, y, n, to)) return status;
        return copy(p, to, {const_cast<void*>(from), n, n}, {n}, kind);
    });
}

FMHA_EXPORT Status cudaMemcpyToArrayAsync(void* a, std::size_t x, std::size_t y, const void* from, std::size_t n,
                                          int kind, void* s) {
    return in_stream(s, NodeKind::copy, [=](void*) { return cudaMemcpyToArray(a, x, y, from, n, kind); });
}

FMHA_EXPORT Status cudaMemcpyFromArray(void* to, const void* a, std::size_t x, std::size_t y, std::size_t n, int kind) {
    return on_device([&](Process& p) {
        Side from;
        if (const Status status = run(a, x, y, n, from)) return status;
        return copy(p, {to, n, n}, from, {n}, kind);
    });
}

FMHA_EXPORT Status cudaMemcpyFromArrayAsync(void* to, const void* a, std::size_t x, std::size_t y, std::size_t n,
                                            int kind, void* s) {
    return in_stream(s, NodeKind::copy, [=](void*) { return cudaMemcpyFromArray(to, a, x, y, n, kind); });
}

FMHA_EXPORT Status cudaMemcpyArrayToArray(void* to, std::size_t to_x, std::size_t to_y, const void* from, std::size_t x,
                                          std::size_t y, std::size_t n, int kind) {
    return on_device([&](Process& p) {
        Side source, target;
        if (const Status status = run(from, x, y, n, source)) return status;
        if (const Status status = run(to, to_x, to_y, n, target)) return status;
        return copy(p, target, source, {n}, kind);
    });
}

// The driver's

FMHA_EXPORT Status cuArray3DCreate_v2(void** out, const DriverArray3DDesc* d) {
    ChannelFormat format;
    if (!d || !format_of(d->format, d->channels, format)) return kInvalidValue;
    return cudaMalloc3DArray(out, &format, {d->width, d->height, d->depth}, d->flags);
}

FMHA_EXPORT Status cuArrayCreate_v2(void** out, const DriverArrayDesc* d) {
    if (!d) return kInvalidValue;
    const DriverArray3DDesc whole{d->width, d->height, 0, d->format, d->channels, 0};
    return cuArray3DCreate_v2(out, &whole);
}

FMHA_EXPORT Status cuArrayDestroy(void* array) { return array ? cudaFreeArray(array) : Status{kInvalidHandle}; }

FMHA_EXPORT Status cuArray3DGetDescriptor_v2(DriverArray3DDesc* out, void* array) {
    return with_device([&](Process&) {
        const Array* a = array_of(array);
        if (!a || !out) return Status{a ? kInvalidValue : kInvalidHandle};
        *out = {a->width, a->height, a->depth, driver_format(a->format), a->channels(), a->flags};
        return Status{kSuccess};
    });
}

FMHA_EXPORT Status cuArrayGetDescriptor_v2(DriverArrayDesc* out, void* array) {
    DriverArray3DDesc whole{};
    if (const Status status = cuArray3DGetDescriptor_v2(&whole, array)) return status;
    if (!out) return kInvalidValue;
    *out = {whole.width, whole.height, whole.format, whole.channels};
    return kSuccess;
}

namespace {

// One side of a driver's copy of boxes.
Status side_of(const DriverSide3D& d, const Box& box, Side& out) {
    if (d.memory == 3) return within(d.array, d.x, d.y, d.z, box, out);
    if (d.memory < 1 || d.memory > 4) return kInvalidValue;
    char* base = d.memory == 1 ? static_cast<char*>(d.host) : reinterpret_cast<char*>(d.device);
    const std::size_t pitch = d.pitch ? d.pitch : box.width, slice = pitch * (d.height ? d.height : box.height);
    if (pitch < box.width) return kInvalidValue;
    out = {base + d.x + d.y * pitch + d.z * slice, pitch, slice};
    return kSuccess;
}

Status copy_box(const DriverCopy3D* c) {
    return on_device([&](Process& p) {
        if (!c) return Status{kInvalidValue};
        const Box box{c->width, c->height, c->depth};
        Side to, from;
        if (const Status status = side_of(c->to, box, to)) return status;
        if (const Status status = side_of(c->from, box, from)) return status;
        return copy(p, to, from, box, kByAddress);
    });
}

DriverCopy3D in_space(const DriverCopy2D& c) {
    const auto side = [](const DriverSide2D& d) {
        return DriverSide3D{d.x, d.y, 0, 0, d.memory, d.host, d.device, d.array, nullptr, d.pitch, 0};
    };
    return {side(c.from), side(c.to), c.width, c.height, 1};
}

Status copy_box_in(void* s, const DriverCopy3D& c) {
    return in_stream(s, NodeKind::copy, [c](void*) { return copy_box(&c); });
}

}  // namespace

FMHA_EXPORT Status cuMemcpy3D_v2(const DriverCopy3D* c) { return copy_box(c); }

FMHA_EXPORT Status cuMemcpy3DAsync_v2(const DriverCopy3D* c, void* s) {
    return c ? copy_box_in(s, *c) : Status{kInvalidValue};
}

FMHA_EXPORT Status cuMemcpy2D_v2(const DriverCopy2D* c) {
    if (!c) return kInvalidValue;
    const DriverCopy3D whole = in_space(*c);
    return copy_box(&whole);
}

FMHA_EXPORT Status cuMemcpy2DUnaligned_v2(const DriverCopy2D* c) { return cuMemcpy2D_v2(c); }

FMHA_EXPORT Status cuMemcpy2DAsync_v2(const DriverCopy2D* c, void* s) {
    return c ? copy_box_in(s, in_space(*c)) : Status{kInvalidValue};
}

FMHA_EXPORT Status cuMemcpyHtoA_v2(void* a, std::size_t at, const void* from, std::size_t n) {
    return cudaMemcpyToArray(a, at, 0, from, n, kHostToDevice);
}

FMHA_EXPORT Status cuMemcpyAtoH_v2(void* to, void* a, std::size_t at, std::size_t n) {
    return cudaMemcpyFromArray(to, a, at, 0, n, kDeviceToHost);
}

FMHA_EXPORT Status cuMemcpyDtoA_v2(void* a, std::size_t at, Address from, std::size_t n) {
    return cudaMemcpyToArray(a, at, 0, reinterpret_cast<void*>(from), n, kDeviceToDevice);
}

FMHA_EXPORT Status cuMemcpyAtoD_v2(Address to, void* a, std::size_t at, std::size_t n) {
    return cudaMemcpyFromArray(reinterpret_cast<void*>(to), a, at, 0, n, kDeviceToDevice);
}

FMHA_EXPORT Status cuMemcpyAtoA_v2(void* to, std::size_t to_at, void* from, std::size_t at, std::size_t n) {
    return cudaMemcpyArrayToArray(to, to_at, 0, from, at, 0, n, kDeviceToDevice);
}

// Under nvcc's --default-stream per-thread.
FMHA_ALIAS(cudaMemcpy2DToArray, _ptds)
FMHA_ALIAS(cudaMemcpy2DToArrayAsync, _ptsz)
FMHA_ALIAS(cudaMemcpy2DFromArray, _ptds)
FMHA_ALIAS(cudaMemcpy2DFromArrayAsync, _ptsz)
FMHA_ALIAS(cudaMemcpy2DArrayToArray, _ptds)
FMHA_ALIAS(cudaMemcpyToArray, _ptds)
FMHA_ALIAS(cudaMemcpyToArrayAsync, _ptsz)
FMHA_ALIAS(cudaMemcpyFromArray, _ptds)
FMHA_ALIAS(cudaMemcpyFromArrayAsync, _ptsz)
FMHA_ALIAS(cudaMemcpyArrayToArray, _ptds)
