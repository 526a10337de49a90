// redux.sync, match.sync (PTX ISA 9.7.13.11, 9.7.13.12) and brx.idx.
#include <algorithm>

#include "isa/handlers.hpp"
#include "machine/warp/convergence.hpp"
#include "machine/warp/lanes.hpp"
#include "machine/warp/meeting.hpp"
#include "numbers/min_max.hpp"

namespace ptxm {
namespace {

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

void reduce_lanes(Warp& w, const Meeting& m) {
    const Inst& i = *m.parties[0].inst;
    u32 gathered[kLanes];
    const u32* a = m.values(w, 1, gathered);
    const u32 keep = i.mods & kAbs ? 0x7FFFFFFFu : ~0u;
    const u32 first = static_cast<u32>(std::countr_zero(m.lanes));
    u32 result = a[first] & keep;
    if (std::has_single_bit(m.lanes) && static_cast<Ty>(i.type) == Ty::f32) result = reduce(i, result, result);
    for (u32 l = first + 1; l < kLanes; ++l)
        if (m.lanes >> l & 1) result = reduce(i, result, a[l] & keep);
    for (const Party& p : m.all()) store_all(w.reg<u32>(w.ops(*p.inst)[0]), result, p.lanes);
}

Flow redux(Warp& w, const Inst& i, u32 mask) { return meet(w, i, mask, reduce_lanes); }

template <class T>
u32 equal_lanes(const T* a, u32 lane, u32 mask) {
    u32 equal = 0;
    for (u32 l = 0; l < kLanes; ++l) equal |= static_cast<u32>(a[l] == a[lane]) << l;
    return equal & mask;
}

template <class T>
void match_each(Warp& w, const Meeting& m) {
    T gathered[kLanes] = {};
    const T* a = m.values(w, 1, gathered);
    u32 result[kLanes];
    for (u32 l = 0; l < kLanes; ++l) result[l] = equal_lanes(a, l, m.lanes);
    for (const Party& p : m.all()) store_lanes(w.reg<u32>(w.ops(*p.inst)[0]), result, p.lanes);
}

template <class T>
Flow match_any(Warp& w, const Inst& i, u32 mask) {
    return meet(w, i, mask, match_each<T>);
}

// match.all: the members when all hold one value, else 0; the optional predicate tells which.
template <class T>
void match_one(Warp& w, const Meeting& m) {
    T gathered[kLanes] = {};
    const T* a = m.values(w, 2, gathered);
    const bool all = equal_lanes(a, static_cast<u32>(std::countr_zero(m.lanes)), m.lanes) == m.lanes;
    for (const Party& p : m.all()) {
        const i32* o = w.ops(*p.inst);
        if (o[0] >= 0) store_all(w.reg<u32>(o[0]), all ? m.lanes : 0, p.lanes);
        if (o[1] >= 0) w.pred(o[1]) = (w.pred(o[1]) & ~p.lanes) | (all ? p.lanes : 0);
    }
}

template <class T>
Flow match_all(Warp& w, const Inst& i, u32 mask) {
    return meet(w, i, mask, match_one<T>);
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

// clang-format off
#define PTXM_OPS_warp(X)                                                            \
    X(brx, control, warp)                                                           \
    X(redux, exchange, warp)                                                        \
    X(match_any, exchange, warp, "match.any.sync{.b32|.b64} d:b32, a, members:b32") \
    X(match_all, exchange, warp, "match.all.sync{.b32|.b64} d:b32|p:pred, a, members:b32")
// clang-format on

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
