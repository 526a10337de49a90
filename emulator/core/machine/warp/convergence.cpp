#include "machine/warp/convergence.hpp"

#include <algorithm>

#include "machine/machine.hpp"
#include "machine/warp/meeting.hpp"
#include "order/conflicts/cta_exit.hpp"
#include "ptx/barriers/cluster_barrier.hpp"
#include "ptx/barriers/named_barrier.hpp"

namespace ptxm {
namespace {

void refresh_join_pc(Warp& w, Fragment& f) { f.join_pc = f.joins.empty() ? -1 : w.joins[f.joins.back()].pc; }

u32 new_join(Warp& w, i32 pc, u32 expected) {
    for (u32 k = 0; k < w.joins.size(); ++k) {
        if (w.joins[k].expected == 0) {
            w.joins[k] = Join{pc, expected, 0};
            return k;
        }
    }
    w.joins.push_back(Join{pc, expected, 0});
    return static_cast<u32>(w.joins.size() - 1);
}

void erase_fragment(Warp& w, u32 index) {
    w.fragments.erase(w.fragments.begin() + index);
    if (w.current > index || w.current == w.fragments.size()) w.current = w.current ? w.current - 1 : 0;
}

i32 parked_at(const Warp& w, u32 join) {
    for (u32 k = 0; k < w.fragments.size(); ++k) {
        const Fragment& f = w.fragments[k];
        if (f.wait == Wait::join && f.joins.back() == join) return static_cast<i32>(k);
    }
    return -1;
}

// Lets the parked fragment of a join go on once every lane that is still expected has arrived.
void settle_join(Warp& w, u32 join) {
    Join& j = w.joins[join];
    if (j.expected == 0 || j.arrived != j.expected) return;
    const i32 index = parked_at(w, join);
    if (index < 0) return;
    Fragment& f = w.fragments[static_cast<u32>(index)];
    f.mask = j.arrived;
    f.wait = Wait::none;
    j.expected = 0;
    f.joins.pop_back();
    refresh_join_pc(w, f);
}

void report_passed_by(Warp& w, const Fragment& waiting, u32 passed) {
    const Inst& i = inst_at(w, waiting.pc);
    if (i.aligned) {
        machine_of(w).running = &w;
        w.current = static_cast<u32>(&waiting - w.fragments.data());
        throw Fault(
            "nonconvergent-aligned",
            format("lanes 0x%08x wait at an .aligned instruction that lanes 0x%08x of their warp have passed by",
                   waiting.mask, passed));
    }
    if (members_operand(i) < 0) return;
    const u32 members = members_of(w, waiting);
    if (!(members & passed)) return;
    machine_of(w).report_strict(&w, "membermask-absent",
                                format("lanes 0x%08x wait at a .sync instruction under the member mask 0x%08x; lanes "
                                       "0x%08x, which it names, have gone on without executing it under this mask",
                                       waiting.mask, members, members & passed),
                                waiting.pc);
}

// A join is where every path from a branch comes by: lanes that have come to it have left out what the others wait at.
// Lanes that only exit there are not waited for.
void check_passed_by(Warp& w, const Fragment& parked) {
    const Inst& at = inst_at(w, parked.pc);
    if (static_cast<Op>(at.op) == Op::ret && at.guard < 0) return;
    const u32 join = parked.joins.back(), passed = w.joins[join].arrived;
    for (const Fragment& f : w.fragments)
        if (f.wait == Wait::converge && std::find(f.joins.begin(), f.joins.end(), join) != f.joins.end())
            report_passed_by(w, f, passed);
}

}  // namespace

Flow diverge(Warp& w, i32 reconverge, const LaneGroup* groups, u32 count) {
    Fragment& f = w.fragment();
    // Lanes whose branch meets the innermost join again (a loop that sheds lanes) need no second one.
    if (count > 1 && reconverge >= 0 && reconverge != f.join_pc) {
        f.joins.push_back(new_join(w, reconverge, f.mask));
        refresh_join_pc(w, f);
    }
    f.pc = groups[0].pc;
    f.mask = groups[0].mask;
    for (u32 k = 1; k < count; ++k) {
        Fragment other = w.fragment();
        other.pc = groups[k].pc;
        other.mask = groups[k].mask;
        w.fragments.push_back(std::move(other));
    }
    return Flow::jump;
}

// Called where the fragment's pc has come to its innermost join.
void reach_join(Warp& w) {
    Fragment& f = w.fragment();
    const u32 join = f.joins.back();
    Join& j = w.joins[join];
    j.arrived |= f.mask;
    const i32 parked = parked_at(w, join);
    if (parked >= 0) {
        erase_fragment(w, w.current);
    } else {
        f.wait = Wait::join;
    }
    settle_join(w, join);
}

void absorb(Warp& w, u32 index) {
    Fragment& into = w.fragment();
    const Fragment& g = w.fragments[index];
    u32 common = 0;
    while (common < into.joins.size() && common < g.joins.size() && into.joins[common] == g.joins[common]) ++common;
    for (u32 n = common; n < g.joins.size(); ++n) w.joins[g.joins[n]].expected &= ~g.mask;
    for (u32 n = common; n < into.joins.size(); ++n) w.joins[into.joins[n]].expected &= ~into.mask;
    into.joins.resize(common);
    into.mask |= g.mask;
    refresh_join_pc(w, into);
    erase_fragment(w, index);
}

bool converge(Warp& w, u32 required) {
    required &= w.live;
    Fragment* f = &w.fragment();
    if ((f->mask & required) == required) return true;
    u32 together = f->mask;
    for (const Fragment& g : w.fragments)
        if (&g != f && g.wait == Wait::converge && g.pc == f->pc) together |= g.mask;
    if ((together & required) != required) {
        f->wait = Wait::converge;
        return false;
    }
    const i32 pc = f->pc;
    for (u32 k = 0; k < w.fragments.size();) {
        const Fragment& g = w.fragments[k];
        if (k == w.current || g.wait != Wait::converge || g.pc != pc)
            ++k;
        else
            absorb(w, k);
    }
    return true;
}

void exit_lanes(Warp& w, u32 mask) {
    w.live &= ~mask;
    leave_cluster_barrier(w, mask);
    Fragment& f = w.fragment();
    f.mask &= ~mask;
    if (f.mask == 0)
        erase_fragment(w, w.current);
    else
        f.pc += 1;
    for (Join& j : w.joins) {
        j.expected &= ~mask;
        j.arrived &= ~mask;
    }
    for (u32 k = 0; k < w.joins.size(); ++k) settle_join(w, k);
    for (Fragment& g : w.fragments)
        if (g.wait == Wait::converge) g.wait = Wait::none;
    if (w.live == 0) {
        w.cta->cluster->live_warps -= 1;
        w.cta->live_warps -= 1;
    }
    leave_named_barriers(w, mask);
    if (w.live == 0 && w.cta->live_warps == 0) check_cta_exit(*w.cta);
}

bool release_joins(Cluster& cluster) {
    bool any = false;
    for (auto& cta : cluster.ctas) {
        for (Warp& w : cta->warps) {
            for (Fragment& f : w.fragments) {
                if (f.wait != Wait::join) continue;
                check_passed_by(w, f);
                Join& j = w.joins[f.joins.back()];
                f.mask = j.arrived;
                j.expected &= ~j.arrived;
                j.arrived = 0;
                f.joins.pop_back();
                refresh_join_pc(w, f);
                f.wait = Wait::none;
                any = true;
            }
        }
    }
    return any;
}

}  // namespace ptxm
