// What textures and surfaces have in common: the object that a lane names, and its elements in memory.
#pragma once

#include "machine/machine.hpp"
#include "ptx/memory/generic_access.hpp"

namespace ptxm {

// The object behind a handle, as an instruction of so many dimensions takes it; anything else is a Fault.
const Image& image_of(Warp& w, const Inst& i, u64 handle, bool surface);

// Calls f(image, lanes) for the lanes of each handle: mostly once.
template <class F>
void each_image(Warp& w, const Inst& i, i32 handle_unit, u32 mask, bool surface, F f) {
    const u64* handles = w.reg<u64>(handle_unit);
    while (mask) {
        const u64 handle = handles[std::countr_zero(mask)];
        u32 same = 0;
        for (u32 l = 0; l < kLanes; ++l) same |= static_cast<u32>((mask >> l & 1) && handles[l] == handle) << l;
        f(image_of(w, i, handle, surface), same);
        mask &= ~same;
    }
}

inline u32 dimensions_of(const Inst& i) { return i.mods >> kImageDimShift & 3; }

// Of a layered image the layer that a lane means: behind the last one it is the last (CUDA C++ programming guide).
inline u64 layer_offset(const Image& m, u32 layer) { return std::min(layer, m.layers - 1) * m.plane; }

// Around the loads of an instruction: at first all lanes have values, and after each load those lack one for which
// nothing has written some of its bytes. Lenient profile.
void begin_loads(Warp& w, const Inst& i, u32 mask);
void after_load(Warp& w, const Inst& i, const Addresses& a, u32 mask, u32 size);

}  // namespace ptxm
