#include "machine/warp/meeting.hpp"

#include <algorithm>

#include "machine/warp/convergence.hpp"

namespace ptxm {
namespace {

bool same_instruction(const Inst& a, const Inst& b) {
    return a.op == b.op && a.mods == b.mods && a.type == b.type && a.width_src == b.width_src;
}

bool waits_with(Warp& w, const Fragment& f, const Inst& i, u32 members) {
    return f.wait == Wait::converge && same_instruction(inst_at(w, f.pc), i) && members_of(w, f) == members;
}

void mark(Warp& w, const Meeting& m) {
    for (const Party& p : m.all()) {
        const i32* d = w.ops(*p.inst);
        for (u32 k = 0; k < p.inst->n_dst; ++k)
            if (d[k] >= 0) w.initialised[static_cast<u32>(d[k])] |= p.lanes;
    }
}

// Those of `mask` that name the same members as the first.
u32 named_alike(const u32* named, u32 mask) {
    const u32 members = named[std::countr_zero(mask)];
    u32 alike = 0;
    for (u32 l = 0; l < kLanes; ++l) alike |= static_cast<u32>(named[l] == members) << l;
    return alike & mask;
}

void check_named(u32 group, u32 members) {
    if (const u32 outside = group & ~members)
        throw Fault("membermask", format("lane %d executes a .sync instruction that its membermask 0x%08x leaves out",
                                         std::countr_zero(outside), members));
}

}  // namespace

Flow meet_apart(Warp& w, const Inst& i, u32 mask, Together together) {
    const u32* named = w.reg<u32>(w.ops(i)[members_operand(i)]);
    const i32 pc = w.pc();
    LaneGroup groups[kLanes + 1];
    u32 waiting = 0, done = 0;
    groups[0] = {pc + 1, w.fragment().mask & ~mask};  // where the guard is false, and those that have met
    for (u32 left = mask; left;) {
        const u32 group = named_alike(named, left), members = named[std::countr_zero(left)];
        left &= ~group;
        check_named(group, members);
        Meeting m;
        m.add(i, group);
        for (const Fragment& f : w.fragments)
            if (waits_with(w, f, i, members)) m.add(inst_at(w, f.pc), f.mask);
        if (m.lanes != (members & w.live)) {
            groups[++waiting] = {pc, group};
            continue;
        }
        together(w, m);
        mark(w, m);
        done |= group;
        const bool whole = group == w.fragment().mask;
        for (u32 k = 0; k < w.fragments.size();) {
            Fragment& f = w.fragments[k];
            if (!waits_with(w, f, i, members)) {
                ++k;
            } else if (whole && f.pc == pc) {
                absorb(w, k);
            } else {
                f.wait = Wait::none;
                f.pc += 1;
                ++k;
            }
        }
        if (whole) return Flow::next;
    }
    groups[0].mask |= done;
    if (waiting == 0 && groups[0].mask == done) return Flow::next;
    const u32 first = groups[0].mask ? 0 : 1;
    const u32 from = static_cast<u32>(w.fragments.size());
    diverge(w, pc + 1, groups + first, waiting + 1 - first);
    if (first) w.fragment().wait = Wait::converge;
    for (u32 k = from; k < w.fragments.size(); ++k) w.fragments[k].wait = Wait::converge;
    return first ? Flow::stay : Flow::jump;
}

}  // namespace ptxm
