// redux.sync, match.sync (PTX ISA 9.7.13.11, 9.7.13.12) and brx.idx.
#include <algorithm>

#include "isa/handlers.hpp"
#include "machine/lanes.hpp"
#include "numbers/min_max.hpp"

namespace ptxm {
namespace {

// The lanes that take part, once they are all here; 0 while some are missing.
u32 gather(Warp& w, i32 members_unit, u32 mask) {
    const u32 members = w.reg<u32>(members_unit)[std::countr_zero(mask)];
    if (!(members >> std::countr_zero(mask) & 1))
        throw Fault("membermask", format("lane %d executes a .sync instruction that its membermask 0x%08x leaves out",
                                         std::countr_zero(mask), members));
    return converge(w, members) ? w.fragment().mask & members : 0;
}

u32 reduce_integers(Atom op, bool is_signed, u32 a, u32 b) {
    switch (op) {
        case Atom::add: return a + b;
        case Atom::and_: return a & b;
        case Atom::or_: return a | b;
        case Atom::xor_: return a ^ b;
        case Atom::min:
            return is_signed ? static_cast<u32>(std::min(static_cast<i32>(a), static_cast<i32>(b))) : std::min(a, b);
        default:
            return is_signed ? static_cast<u32>(std::max(static_cast<i32>(a), static_cast<i32>(b))) : std::max(a, b);
    }
}

// redux.sync.op{.abs}{.NaN}: the operation is an Atom in the modifiers.
u32 reduce(const Inst& i, u32 a, u32 b) {
    const Atom op = static_cast<Atom>(i.mods >> kAtomShift & 0xF);
    if (static_cast<Ty>(i.type) != Ty::f32) return reduce_integers(op, static_cast<Ty>(i.type) == Ty::s32, a, b);
    float x = std::bit_cast<float>(a), y = std::bit_cast<float>(b);
    const bool propagate = i.mods & kNan;
    return std::bit_cast<u32>(op == Atom::min ? extreme<false>(x, y, propagate) : extreme<true>(x, y, propagate));
}

Flow redux(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    mask = gather(w, o[2], mask);
    if (mask == 0) return Flow::stay;
    const u32* a = w.reg<u32>(o[1]);
    const u32 keep = i.mods & kAbs ? 0x7FFFFFFFu : ~0u;
    const u32 first = static_cast<u32>(std::countr_zero(mask));
    u32 result = a[first] & keep;
    if (std::has_single_bit(mask) && static_cast<Ty>(i.type) == Ty::f32) result = reduce(i, result, result);
    for (u32 l = first + 1; l < kLanes; ++l)
        if (mask >> l & 1) result = reduce(i, result, a[l] & keep);
    for (u32 l = 0; l < kLanes; ++l)
        if (mask >> l & 1) w.reg<u32>(o[0])[l] = result;
    return Flow::next;
}

template <class T>
u32 equal_lanes(const T* a, u32 lane, u32 mask) {
    u32 equal = 0;
    for (u32 l = 0; l < kLanes; ++l) equal |= static_cast<u32>(a[l] == a[lane]) << l;
    return equal & mask;
}

template <class T>
Flow match_any(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    mask = gather(w, o[2], mask);
    if (mask == 0) return Flow::stay;
    u32 result[kLanes];
    for (u32 l = 0; l < kLanes; ++l) result[l] = equal_lanes(w.reg<T>(o[1]), l, mask);
    store_lanes(w.reg<u32>(o[0]), result, mask);
    return Flow::next;
}

// match.all: the members when all hold one value, else 0; the optional predicate tells which.
template <class T>
Flow match_all(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    mask = gather(w, o[3], mask);
    if (mask == 0) return Flow::stay;
    const bool all = equal_lanes(w.reg<T>(o[2]), static_cast<u32>(std::countr_zero(mask)), mask) == mask;
    if (o[0] >= 0)
        for (u32 l = 0; l < kLanes; ++l)
            if (mask >> l & 1) w.reg<u32>(o[0])[l] = all ? mask : 0;
    if (o[1] >= 0) w.pred(o[1]) = (w.pred(o[1]) & ~mask) | (all ? mask : 0);
    return Flow::next;
}

// brx.idx: the targets follow the sources, `immediate` of them (PTX ISA 9.7.12.4).
Flow brx(Warp& w, const Inst& i, u32 taken) {
    const i32* o = w.ops(i);
    const i32* targets = o + i.n_src;
    const u32* index = w.reg<u32>(o[0]);
    LaneGroup groups[kLanes + 1];
    u32 count = 0;
    const u32 others = w.fragment().mask & ~taken;
    if (others) groups[count++] = {w.pc() + 1, others};
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(taken >> l & 1)) continue;
        if (index[l] >= static_cast<u64>(i.immediate))
            throw Fault("branch-index", format("brx.idx with index %u in lane %u; there are %lld targets", index[l], l,
                                               static_cast<long long>(i.immediate)));
        const i32 pc = targets[index[l]];
        LaneGroup* group = std::find_if(groups, groups + count, [pc](const LaneGroup& g) { return g.pc == pc; });
        if (group == groups + count) groups[count++] = {pc, 0};
        group->mask |= 1u << l;
    }
    return diverge(w, i.reconverge, groups, count);
}

}  // namespace

Handler bind_warp(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::redux: return redux;
        case Op::match_any: return r.width_src == 64 ? match_any<u64> : match_any<u32>;
        case Op::match_all: return r.width_src == 64 ? match_all<u64> : match_all<u32>;
        case Op::brx: return brx;
        default: return nullptr;
    }
}

}  // namespace ptxm
