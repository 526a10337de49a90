// The sixteen named barriers of a CTA: bar and barrier .sync, .arrive and .red (PTX ISA 9.7.13.1).
//
// A barrier counts warps: a warp has arrived when all its lanes that have not exited have, at whichever instruction.
#include "ptx/barriers/named_barrier.hpp"

#include "isa/handlers.hpp"
#include "machine/machine.hpp"

namespace ptxm {
namespace {

u32 live_threads(const Cta& cta) { return cta.live_warps * kLanes; }

u32 launched(const Warp& w) {
    const std::array<u32, 3>& block = w.cta->cluster->machine->launch->block;
    const u32 threads = block[0] * block[1] * block[2] - w.index * kLanes;
    return threads >= kLanes ? kFullMask : (1u << threads) - 1;
}

u32 result_of(const NamedBarrier& b) {
    switch (b.reduction) {
        case Reduction::and_: return b.all;
        case Reduction::or_: return b.any;
        default: return b.count;
    }
}

// A barrier without a number of threads is for all that the CTA was launched with. Hardware takes those that have
// exited for arrived, and released kernels return early on the strength of it.
void check_exited(const Cta& cta, const NamedBarrier& b, u32 id, const Warp& at, i32 pc) {
    Machine& m = *cta.cluster->machine;
    if (b.expected || m.profile != Profile::strict) return;
    u32 absent = 0;
    for (const Warp& w : cta.warps)
        absent += static_cast<u32>(std::popcount(launched(w) & ~w.live & ~b.lanes[w.index]));
    if (!absent) return;
    m.report(
        &at, "barrier-exited-threads",
        format("barrier %u waits for the whole CTA, of which %u threads have exited without coming to it", id, absent),
        pc);
}

void complete(Cta& cta, u32 id, const Warp& at, i32 pc) {
    NamedBarrier& b = cta.barriers[id];
    check_exited(cta, b, id, at, pc);
    cta.cluster->note_progress();
    for (Warp& w : cta.warps) {
        for (Fragment& f : w.fragments) {
            if (f.wait != Wait::barrier || f.wait_barrier != id) continue;
            f.wait = Wait::none;
            f.passed_barrier = true;
            f.barrier_result = result_of(b);
            w.clocks.acquire(b.arriving, w.acting(f.mask));
            w.time = std::max(w.time, cta.cluster->now);
        }
    }
    b.reset();
}

// Others have exited: those that wait go on.
void complete_without(Cta& cta, u32 id) {
    for (const Warp& w : cta.warps)
        for (const Fragment& f : w.fragments)
            if (f.wait == Wait::barrier && f.wait_barrier == id) return complete(cta, id, w, f.pc);
    cta.barriers[id].reset();
}

// The barrier and the number of threads that it is to wait for. immediate 1: both are constants of the instruction.
u32 select(Warp& w, const Inst& i, u32 mask, const i32* sources, u32& id) {
    const u32 lane = static_cast<u32>(std::countr_zero(mask));
    id = w.reg<u32>(sources[0])[lane];
    const u32 count = i.mods & kBarHasCount ? w.reg<u32>(sources[1])[lane] : 0;
    const auto differ = [&](const u32* values, u32 value) {  // no branches: the loop vectorises
        u32 any = 0;
        for (u32 l = 0; l < kLanes; ++l) any |= (values[l] ^ value) & (0u - (mask >> l & 1));
        return any != 0;
    };
    if (!i.immediate &&
        (differ(w.reg<u32>(sources[0]), id) || ((i.mods & kBarHasCount) && differ(w.reg<u32>(sources[1]), count))))
        throw Fault("barrier-operands", "the lanes of a warp name different barriers or thread counts");
    if (id >= w.cta->barriers.size()) throw Fault("barrier-index", format("barrier %u; a CTA has 16", id));
    if (!(i.mods & kBarHasCount)) return 0;
    if (count == 0 || count % kLanes)
        throw Fault(
            "barrier-count",
            format("barrier %u expects %u threads, which is not a positive multiple of the warp size", id, count));
    return count;
}

void check_agreement(Warp& w, NamedBarrier& b, u32 id, u32 expected, Reduction reduction) {
    if (b.arrived && b.expected != expected)
        machine_of(w).report(&w, "barrier-count-mismatch",
                             format("barrier %u expects %u threads here and %u where others arrived (0: the whole CTA)",
                                    id, expected, b.expected),
                             w.pc());
    if (b.arrived && b.reduction != reduction)
        machine_of(w).report(&w, "barrier-mixed-reduction",
                             format("barrier %u is used here with another reduction than where others arrived", id),
                             w.pc());
    if (!b.arrived || expected) b.expected = expected;
    b.reduction = reduction;
}

// Marks lanes as arrived. True when their warp is complete, and has just arrived with them. FlashAttention-4's backward
// kernels count a warp twice: it arrives in the place of a warp that has nothing to wait for, then waits itself.
bool mark(Warp& w, NamedBarrier& b, u32 id, u32 mask, bool waits) {
    if (b.lanes.empty()) b.lanes.resize(w.cta->warps.size());
    u32& lanes = b.lanes[w.index];
    const bool stands_in = waits && machine_of(w).profile == Profile::lenient;
    if ((lanes & mask) && !stands_in)
        machine_of(w).report(
            &w, "barrier-over-arrival",
            format("lanes 0x%08x arrive at barrier %u again before it has completed", lanes & mask, id), w.pc());
    const bool again = (lanes & w.live) == w.live;
    lanes |= mask;
    return again || (lanes & w.live) == w.live;
}

void reduce(Warp& w, const Inst& i, NamedBarrier& b, i32 unit, u32 mask) {
    const u32 p = (i.mods & kBarNegated ? ~w.pred(unit) : w.pred(unit)) & mask;
    b.count += static_cast<u32>(std::popcount(p));
    b.all &= p == mask;
    b.any |= p != 0;
}

void write_result(Warp& w, const Inst& i, u32 mask, u32 result) {
    if (!i.n_dst || w.ops(i)[0] < 0) return;
    const i32 d = w.ops(i)[0];
    if (static_cast<Reduction>(i.mods >> kReduceShift & 0xF) != Reduction::popc) {
        w.pred(d) = (w.pred(d) & ~mask) | (result ? mask : 0);
        return;
    }
    for (u32 l = 0; l < kLanes; ++l)
        if (mask >> l & 1) w.reg<u32>(d)[l] = result;
}

// Sources: barrier, [thread count], [predicate].
Flow bar(Warp& w, const Inst& i, u32 mask) {
    Fragment& f = w.fragment();
    if (f.passed_barrier) {
        f.passed_barrier = false;
        write_result(w, i, mask, f.barrier_result);
        return Flow::next;
    }
    const i32* s = w.ops(i) + i.n_dst;
    u32 id = 0;
    const u32 expected = select(w, i, mask, s, id);
    NamedBarrier& b = w.cta->barriers[id];
    const Reduction reduction = static_cast<Reduction>(i.mods >> kReduceShift & 0xF);
    check_agreement(w, b, id, expected, reduction);
    w.clocks.release_to(b.arriving, w.acting(mask));
    if (reduction != Reduction::none) reduce(w, i, b, s[i.n_src - 1], mask);
    const bool arrive_only = i.mods & kBarArriveOnly;
    if (mark(w, b, id, mask, !arrive_only)) b.arrived += kLanes;
    const u32 needed = b.expected ? b.expected : live_threads(*w.cta);
    if (b.arrived >= needed) {
        if (!arrive_only) w.clocks.acquire(b.arriving, w.acting(mask));
        w.cta->cluster->now = std::max(w.cta->cluster->now, w.time);
        const u32 result = result_of(b);
        complete(*w.cta, id, w, w.pc());
        write_result(w, i, mask, result);
        return Flow::next;
    }
    if (arrive_only) return Flow::next;
    f.wait = Wait::barrier;
    f.wait_barrier = id;
    return Flow::stay;
}

}  // namespace

void leave_named_barriers(Warp& w, u32 exited) {
    Cta& cta = *w.cta;
    for (u32 id = 0; id < cta.barriers.size(); ++id) {
        NamedBarrier& b = cta.barriers[id];
        const u32 lanes = b.lanes.empty() ? 0 : b.lanes[w.index], before = w.live | exited;
        const bool completes_warp = lanes && (lanes & before) != before && (lanes & w.live) == w.live;
        if (completes_warp) b.arrived += kLanes;
        const u32 needed = b.expected ? b.expected : live_threads(cta);
        if (b.arrived && b.arrived >= needed) complete_without(cta, id);
    }
}

// clang-format off
#define PTXM_OPS_named_barrier(X)  \
    X(bar, barrier, named_barrier) \
    X(bar_red, barrier, named_barrier)
// clang-format on

Handler bind_named_barrier(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::bar:
        case Op::bar_red: return bar;
        default: return nullptr;
    }
}

}  // namespace ptxm
