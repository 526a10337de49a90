// Texture and surface objects: what they are over goes to the emulator, which has the objects.
#include "arrays.hpp"

namespace fmha {
namespace {

constexpr std::size_t kAlignment = 512, kPitchAlignment = 32;  // as cudaDeviceProp has them for textures

struct Object {
    ResourceDesc resource;
    TextureDesc texture;  // not of a surface
};

std::map<Address, Object>& objects() {
    static std::map<Address, Object> all;
    return all;
}

// What an object reads, as a request says it.
struct Image {
    Address address = 0;
    ChannelFormat format{};
    std::size_t width = 0, height = 0, depth = 0, layers = 0, pitch = 0, plane = 0;
    bool linear = false;
};

bool aligned(Process& p, const void* pointer) {
    const auto* found = p.holder(pointer);
    return !found || (reinterpret_cast<Address>(pointer) - found->first) % kAlignment == 0;
}

Status image_of(Process& p, const ResourceDesc& r, bool surface, Image& out) {
    switch (r.type) {
        case 0: {
            const Array* a = array_of(r.array);
            if (!a) return kInvalidHandle;
            if (surface && !a->for_surfaces()) return kInvalidValue;
            const bool layered = a->layered();
            out = {a->address, a->format, a->width, a->height, layered ? 0 : a->depth, layered ? a->depth : 0,
                   a->pitch(), a->plane()};
            return kSuccess;
        }
        case 1: return p.refuse("a texture or surface object of a mipmapped array");
        case 2: {
            const Array one{r.linear.format, 1};
            if (surface || texel_of(one.format) < 0 || !aligned(p, r.linear.pointer)) return kInvalidValue;
            out.address = reinterpret_cast<Address>(r.linear.pointer);
            out.format = one.format;
            out.width = r.linear.size / one.element_bytes();
            out.linear = true;
            return out.width ? kSuccess : kInvalidValue;
        }
        case 3:
            if (surface || !aligned(p, r.pitched.pointer) || r.pitched.pitch % kPitchAlignment) return kInvalidValue;
            out = {reinterpret_cast<Address>(r.pitched.pointer),
                   r.pitched.format,
                   r.pitched.width,
                   r.pitched.height,
                   0,
                   0,
                   r.pitched.pitch};
            return out.height ? kSuccess : kInvalidValue;
        default: return kInvalidValue;
    }
}

Status describe(Process& p, const ResourceDesc& r, bool surface, Request& request) {
    Image m;
    if (r.flags) return kInvalidValue;
    if (const Status status = image_of(p, r, surface, m)) return status;
    const int texel = texel_of(m.format);
    if (texel < 0) return kInvalidValue;
    const Array one{m.format, 1};
    request.integer(m.address).integer(static_cast<unsigned>(texel)).integer(m.width).integer(m.height);
    request.integer(m.depth).integer(m.layers).integer(one.channels()).integer(m.pitch).integer(m.plane);
    request.integer(m.linear);
    return kSuccess;
}

Status make(Process& p, Address* out, Request request, const Object& object) {
    Reply reply = p.ask(std::move(request));
    if (reply.status) return reply.status;
    *out = reply.integer();
    objects()[*out] = object;
    return kSuccess;
}

Status make_texture(Process& p, Address* out, const ResourceDesc* r, const TextureDesc* t, const void* view) {
    if (!out || !r || !t) return kInvalidValue;
    if (view) return p.refuse("a texture object with a resource view");
    if (t->srgb) return p.refuse("a texture object that converts sRGB");
    Request request("texture");
    if (const Status status = describe(p, *r, false, request)) return status;
    for (const int mode : t->addressing) {
        if (mode < 0 || mode > 3) return kInvalidValue;
        request.integer(static_cast<unsigned>(mode));
    }
    // Of linear memory no filter is asked.
    request.integer(t->filter == 1 && r->type != 2).integer(t->normalized != 0).integer(t->read_mode == 1);
    request.bytes(t->border, sizeof t->border);
    return make(p, out, std::move(request), {*r, *t});
}

Status destroy(Process& p, Address handle) {
    if (!handle) return kSuccess;
    if (!objects().erase(handle)) return kInvalidValue;
    return p.ask(Request("destroy").integer(handle)).status;
}

template <class T>
Status tell(Address handle, T* out, T Object::* what) {
    return with_device([&](Process&) {
        const auto found = objects().find(handle);
        if (found == objects().end() || !out) return Status{kInvalidValue};
        *out = found->second.*what;
        return Status{kSuccess};
    });
}

}  // namespace
}  // namespace fmha

using namespace fmha;

FMHA_EXPORT Status cudaCreateTextureObject(Address* out, const ResourceDesc* r, const TextureDesc* t,
                                           const void* view) {
    return on_device([&](Process& p) { return make_texture(p, out, r, t, view); });
}

FMHA_EXPORT Status cudaDestroyTextureObject(Address handle) {
    return on_device([&](Process& p) { return destroy(p, handle); });
}

FMHA_EXPORT Status cudaGetTextureObjectResourceDesc(ResourceDesc* out, Address handle) {
    return tell(handle, out, &Object::resource);
}

FMHA_EXPORT Status cudaGetTextureObjectTextureDesc(TextureDesc* out, Address handle) {
    return tell(handle, out, &Object::texture);
}

FMHA_EXPORT Status cudaCreateSurfaceObject(Address* out, const ResourceDesc* r) {
    return on_device([&](Process& p) {
        if (!out || !r) return Status{kInvalidValue};
        Request request("surface");
        if (const Status status = describe(p, *r, true, request)) return status;
        return make(p, out, std::move(request), {*r, {}});
    });
}

FMHA_EXPORT Status cudaDestroySurfaceObject(Address handle) {
    return on_device([&](Process& p) { return destroy(p, handle); });
}

FMHA_EXPORT Status cudaGetSurfaceObjectResourceDesc(ResourceDesc* out, Address handle) {
    return tell(handle, out, &Object::resource);
}

// The driver's

namespace {

constexpr unsigned kReadAsInteger = 1, kNormalized = 2, kSrgb = 0x10;

bool resource_of(const DriverResourceDesc& d, ResourceDesc& out) {
    out = {};
    out.type = d.type;
    out.flags = d.flags;
    ChannelFormat format{};
    switch (d.type) {
        case 2:
            if (!format_of(d.linear.format, d.linear.channels, format)) return false;
            out.linear = {reinterpret_cast<void*>(d.linear.pointer), format, d.linear.size};
            return true;
        case 3:
            if (!format_of(d.pitched.format, d.pitched.channels, format)) return false;
            out.pitched = {reinterpret_cast<void*>(d.pitched.pointer), format, d.pitched.width, d.pitched.height,
                           d.pitched.pitch};
            return true;
        default: out.array = d.array; return true;
    }
}

// The driver reads integers of 8 and 16 bits as fractions unless a flag says otherwise.
TextureDesc texture_of(const DriverTextureDesc& d, const ResourceDesc& r) {
    TextureDesc t{};
    std::copy_n(d.addressing, 3, t.addressing);
    t.filter = d.filter;
    ChannelFormat format{};
    if (r.type == 2) format = r.linear.format;
    if (r.type == 3) format = r.pitched.format;
    if (const Array* a = r.type == 0 ? array_of(r.array) : nullptr) format = a->format;
    t.read_mode = !(d.flags & kReadAsInteger) && format.x < 32;
    t.srgb = (d.flags & kSrgb) != 0;
    std::copy_n(d.border, 4, t.border);
    t.normalized = (d.flags & kNormalized) != 0;
    t.anisotropy = d.anisotropy;
    return t;
}

}  // namespace

FMHA_EXPORT Status cuTexObjectCreate(Address* out, const DriverResourceDesc* r, const DriverTextureDesc* t,
                                     const void* view) {
    ResourceDesc resource;
    if (!r || !t || !resource_of(*r, resource)) return kInvalidValue;
    return on_device([&](Process& p) {
        const TextureDesc texture = texture_of(*t, resource);
        const Status status = make_texture(p, out, &resource, &texture, view);
        // The driver has no errors of their own for these.
        return status == kInvalidFilter || status == kInvalidScale ? Status{kInvalidValue} : status;
    });
}

FMHA_EXPORT Status cuTexObjectDestroy(Address handle) { return cudaDestroyTextureObject(handle); }

FMHA_EXPORT Status cuSurfObjectCreate(Address* out, const DriverResourceDesc* r) {
    ResourceDesc resource;
    return r && resource_of(*r, resource) ? cudaCreateSurfaceObject(out, &resource) : Status{kInvalidValue};
}

FMHA_EXPORT Status cuSurfObjectDestroy(Address handle) { return cudaDestroySurfaceObject(handle); }
