// suld.b and sust.b (PTX ISA 9.7.11): bytes of a surface, unformatted. The first coordinate counts bytes.
#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "ptx/textures/image_access.hpp"

namespace ptxm {
namespace {

// What an access outside does, as decode/textures.py numbers it.
enum class Outside : u8 { trap, clamp, zero };

// Where lanes access a surface, and which of them lie in it.
struct Places {
    Addresses a;
    u32 inside;
};

Places places_of(Warp& w, const Inst& i, const Image& m, const i32* coordinates, u32 mask, u32 size) {
    const auto outside = static_cast<Outside>(i.mods >> kSurfaceShift & 3);
    const u64 row = u64{m.size[0]} * element_bytes_of(m);
    const u64 last[] = {row - size, m.size[1] - 1u, m.size[2] - 1u}, strides[] = {1, m.pitch, m.plane};
    if (size > row)
        throw Fault("surface-out-of-bounds",
                    format("%u bytes a lane of a surface whose rows have %llu", size, (unsigned long long)row));
    Places p{{}, mask};
    const u32* layer = m.layers ? w.reg<u32>(*coordinates++) : nullptr;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        u64 at = m.address;
        const auto step = [&](i64 given, u64 most, u64 stride, const char* what) {
            const i64 held = std::clamp<i64>(given, 0, static_cast<i64>(most));
            if (held != given && outside == Outside::trap)
                throw Fault("surface-out-of-bounds", format("%s %lld of lane %u; the last one of this surface is %llu",
                                                            what, (long long)given, l, (unsigned long long)most));
            if (held != given && outside == Outside::zero) p.inside &= ~(1u << l);
            at += static_cast<u64>(held) * stride;
        };
        if (layer) step(layer[l], m.layers - 1u, m.plane, "layer");
        static constexpr const char* kNames[] = {"byte", "row", "plane"};
        for (u32 d = 0; d < m.dimensions; ++d) step(w.reg<i32>(coordinates[d])[l], last[d], strides[d], kNames[d]);
        p.a.at[l] = at;
    }
    return p;
}

Flow suld(Warp& w, const Inst& i, u32 mask) {
    static const u8 kZeros[16] = {};
    const i32* s = w.ops(i) + i.n_dst;
    const u32 size = element_bytes(static_cast<Ty>(i.type)) * i.n_dst;
    u8* pointers[kLanes];
    for (u8*& p : pointers) p = const_cast<u8*>(kZeros);
    begin_loads(w, i, mask);
    each_image(w, i, s[0], mask, true, [&](const Image& m, u32 lanes) {
        Places p = places_of(w, i, m, s + 1, lanes, size);
        if (!p.inside) return;
        u8* found[kLanes];
        resolve_lanes(w, Space::global, p.a, p.inside, size, false, found, Strength::weak, nullptr, true);
        after_load(w, i, p.a, p.inside, size);
        for (u32 l = 0; l < kLanes; ++l)
            if (p.inside >> l & 1) pointers[l] = found[l];
    });
    load_values(w, i, mask, pointers);
    return Flow::next;
}

// Sources: the handle, the values, of which the immediate counts, then the coordinates.
Flow sust(Warp& w, const Inst& i, u32 mask) {
    const i32* s = w.ops(i);
    const u32 values = static_cast<u32>(i.immediate), bytes = element_bytes(static_cast<Ty>(i.type));
    const u32 stride = i.width_src / 8;
    each_image(w, i, s[0], mask, true, [&](const Image& m, u32 lanes) {
        Places p = places_of(w, i, m, s + 1 + values, lanes, bytes * values);
        if (!p.inside) return;
        u8* pointers[kLanes];
        resolve_lanes(w, Space::global, p.a, p.inside, bytes * values, true, pointers);
        for (u32 k = 0; k < values; ++k)
            for (u32 l = 0; l < kLanes; ++l)
                if (p.inside >> l & 1) std::memcpy(pointers[l] + k * bytes, w.reg<u8>(s[1 + k]) + l * stride, bytes);
    });
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_surface(X)         \
    X(suld, global_memory, surface) \
    X(sust, global_memory, surface)
// clang-format on

Handler bind_surface(const InstRecord& r) { return static_cast<Op>(r.op) == Op::suld ? suld : sust; }

}  // namespace ptxm
