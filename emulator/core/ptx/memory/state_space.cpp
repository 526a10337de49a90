// Generic addresses and the windows of the state spaces (PTX ISA 5.1): cvta, isspacep.
#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/warp/lanes.hpp"
#include "ptx/memory/generic_access.hpp"

namespace ptxm {

namespace {

u64 window_base(Space space) {
    switch (space) {
        case Space::shared:
        case Space::shared_cluster: return kSharedWindow;
        case Space::local: return kLocalWindow;
        case Space::param: return kParamWindow;
        default: return 0;
    }
}

Flow cvta(Warp& w, const Inst& i, u32 mask) {
    const u64 base = window_base(space_of(i));
    return unary<u64, u64>(w, i, mask, [base](u64 a) { return base + a; });
}

// A null pointer becomes shared address 0, which faults when it is used: CUTLASS's Hopper FMHA makes one, and does not.
Flow cvta_to(Warp& w, const Inst& i, u32 mask) {
    const Space space = space_of(i);
    const u64 base = window_base(space);
    const bool null_too = space == Space::shared || space == Space::shared_cluster;
    if (base) {
        const u64* a = w.reg<u64>(w.ops(i)[1]);
        for (u32 l = 0; l < kLanes; ++l)
            if ((mask >> l & 1) && (a[l] & kWindowMask) != base && (a[l] || !null_too))
                throw Fault("address-space",
                            format("cvta.to of 0x%llx, which is not in that window", (unsigned long long)a[l]));
    }
    return unary<u64, u64>(w, i, mask, [base, null_too](u64 a) { return null_too && !a ? 0 : a - base; });
}

// .shared and .shared::cta hold in the own CTA's window only, .shared::cluster in that of any CTA of the cluster.
Flow isspacep(Warp& w, const Inst& i, u32 mask) {
    const Space space = space_of(i);
    const u64* a = w.reg<u64>(w.ops(i)[1]);
    u32 bits = 0;
    for (u32 l = 0; l < kLanes; ++l) {
        const Space window = window_of(a[l]);
        bool inside = window == space || (space == Space::constant && window == Space::global);
        if (space == Space::shared)
            inside = window == Space::shared_cluster && (a[l] & ~kWindowMask) >> kSharedRankShift == w.cta->rank;
        bits |= static_cast<u32>(inside) << l;
    }
    u32& p = w.pred(w.ops(i)[0]);
    p = (p & ~mask) | (bits & mask);
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_state_space(X)      \
    X(cvta, integer, state_space)    \
    X(cvta_to, integer, state_space) \
    X(isspacep, integer, state_space)
// clang-format on

Handler bind_state_space(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::cvta: return cvta;
        case Op::cvta_to: return cvta_to;
        case Op::isspacep: return isspacep;
        default: return nullptr;
    }
}

}  // namespace ptxm
