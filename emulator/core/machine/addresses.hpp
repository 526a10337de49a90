// What an address means: the state space that it lies in, and the bytes there. Addresses that are nobody's are Faults.
#pragma once

#include "machine/warp/warp.hpp"
#include "memory/memory.hpp"

namespace ptxm {

// Of one element.
inline u32 element_bytes(Ty ty) {
    switch (ty) {
        case Ty::b8:
        case Ty::u8_:
        case Ty::s8: return 1;
        case Ty::b16:
        case Ty::u16_:
        case Ty::s16:
        case Ty::f16:
        case Ty::bf16: return 2;
        case Ty::b64:
        case Ty::u64_:
        case Ty::s64:
        case Ty::f64:
        case Ty::f32x2: return 8;
        case Ty::b128: return 16;
        default: return 4;
    }
}

inline Space space_of(const Inst& i) { return static_cast<Space>((i.mods & kSpaceMask) >> kSpaceShift); }

// The state space that a generic address lies in.
inline Space window_of(u64 address) {
    switch (address & kWindowMask) {
        case kSharedWindow: return Space::shared_cluster;
        case kLocalWindow: return Space::local;
        case kParamWindow: return Space::param;
        default: return Space::global;
    }
}

struct SharedRef {
    Cta* cta;
    u32 offset;
};
// `what` is the operation that a message names.
SharedRef resolve_shared(Warp& w, u32 address, u32 size, const char* what);
Allocation& resolve_global(Warp& w, u64 address, u64 size, const char* what);
u8* resolve_param(Warp& w, u64 offset, u64 size);

}  // namespace ptxm
