#include "ptx/textures/image_access.hpp"

#include "machine/addresses.hpp"
#include "order/conflicts/conflicts.hpp"

namespace ptxm {
namespace {

std::string shape(u32 dimensions, bool layered) { return format("%s%uD", layered ? "layered " : "", dimensions); }

}  // namespace

const Image& image_of(Warp& w, const Inst& i, u64 handle, bool surface) {
    const char* kind = surface ? "surface" : "texture";
    const Image* found = machine_of(w).global.images().find(handle);
    if (!found)
        throw Fault("image-object", format("0x%llx is no %s object of this device, or was destroyed",
                                           (unsigned long long)handle, kind));
    const Image& m = *found;
    if (m.surface != surface)
        throw Fault("image-object",
                    format("a %s object where a %s is expected", m.surface ? "surface" : "texture", kind));
    const u32 dimensions = dimensions_of(i);
    const bool layered = i.mods & kImageLayered;
    if (dimensions && (m.dimensions != dimensions || (m.layers > 0) != layered))
        throw Fault("image-object",
                    format("a %s %s, which the instruction takes for a %s one",
                           shape(m.dimensions, m.layers > 0).c_str(), kind, shape(dimensions, layered).c_str()));
    return m;
}

void begin_loads(Warp& w, const Inst& i, u32 mask) {
    if (w.undefined.empty()) return;
    for (u32 k = 0; k < i.n_dst; ++k)
        if (const i32 unit = w.ops(i)[k]; unit >= 0) w.undefined[static_cast<u32>(unit)] &= ~mask;
}

void after_load(Warp& w, const Inst& i, const Addresses& a, u32 mask, u32 size) {
    if (!w.unwritten) return;
    Machine& m = machine_of(w);
    w.undefined.resize(w.program->units);
    w.undefined_pc = w.pc();
    w.undefined_in = Unwritten::global;
    u32 lacking = 0;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const Allocation& held = resolve_global(w, a.at[l], size, "load");
        lacking |= static_cast<u32>(!written(m, held, a.at[l], size)) << l;
    }
    for (u32 k = 0; k < i.n_dst; ++k)
        if (const i32 unit = w.ops(i)[k]; unit >= 0) w.undefined[static_cast<u32>(unit)] |= lacking;
}

}  // namespace ptxm
