// Branches, divergence and reconvergence, warp-wide data movement.
#include <array>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "isa/handlers.hpp"
#include "machine/machine.hpp"
#include "machine/warp/convergence.hpp"
#include "machine/warp/lanes.hpp"
#include "machine/warp/meeting.hpp"

namespace ptxm {
namespace {

Flow bra(Warp& w, const Inst& i, u32 taken) {
    Fragment& f = w.fragment();
    const u32 others = f.mask & ~taken;
    if (others == 0) {
        f.pc = i.target;
        return Flow::jump;
    }
    if (taken == 0) return Flow::next;
    const LaneGroup groups[] = {{f.pc + 1, others}, {i.target, taken}};
    return diverge(w, i.reconverge, groups, 2);
}

Flow ret(Warp& w, const Inst&, u32 mask) {
    exit_lanes(w, mask);
    return Flow::stay;
}

Flow trap(Warp&, const Inst& i, u32) {
    if (i.immediate) throw Fault("indirect-call", "the address called is that of no function with this prototype");
    throw Fault("trap", "the kernel executed trap");
}
Flow nop(Warp&, const Inst&, u32) { return Flow::next; }

Flow clock(Warp& w, const Inst& i, u32 mask) {
    const u64 now = w.time;
    const i32 d = w.ops(i)[0];
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        if (i.width_dst == 64)
            w.reg<u64>(d)[l] = now;
        else
            w.reg<u32>(d)[l] = static_cast<u32>(now);
    }
    return Flow::next;
}

// Operands leader, is leader, membermask.
void elect_leader(Warp& w, const Meeting& m) {
    const u32 leader = static_cast<u32>(std::countr_zero(m.lanes));
    for (const Party& p : m.all()) {
        const i32* o = w.ops(*p.inst);
        if (o[0] >= 0) store_all(w.reg<u32>(o[0]), leader, p.lanes);
        if (o[1] >= 0) w.pred(o[1]) = (w.pred(o[1]) & ~p.lanes) | (1u << leader & p.lanes);
    }
}

Flow elect(Warp& w, const Inst& i, u32 mask) { return meet(w, i, mask, elect_leader); }

// Operands d, p, membermask; immediate 1: !p.
void count_votes(Warp& w, const Meeting& m) {
    u32 votes = 0;
    for (const Party& p : m.all()) {
        const u32 of = w.pred(w.ops(*p.inst)[1]);
        votes |= (p.inst->immediate ? ~of : of) & p.lanes;
    }
    bool result = false;
    switch (m.parties[0].inst->mods >> kVoteShift & 7) {
        case 0: result = votes == m.lanes; break;                // all
        case 1: result = votes != 0; break;                      // any
        case 2: result = votes == m.lanes || votes == 0; break;  // uni
        default:                                                 // ballot
            for (const Party& p : m.all()) store_all(w.reg<u32>(w.ops(*p.inst)[0]), votes, p.lanes);
            return;
    }
    for (const Party& p : m.all()) {
        u32& d = w.pred(w.ops(*p.inst)[0]);
        d = (d & ~p.lanes) | (result ? p.lanes : 0);
    }
}

Flow vote(Warp& w, const Inst& i, u32 mask) { return meet(w, i, mask, count_votes); }

Flow activemask(Warp& w, const Inst& i, u32 mask) {
    for (u32 l = 0; l < kLanes; ++l)
        if (mask >> l & 1) w.reg<u32>(w.ops(i)[0])[l] = w.fragment().mask;
    return Flow::next;
}

// The lane that each lane of a shfl.sync reads, by mode: 0 up, 1 down, 2 bfly, 3 idx; `valid`: in range, otherwise its
// own (PTX ISA 9.7.9.6).
struct ShuffleSources {
    i32 lane[kLanes];
    u32 valid;
};

// That of __shfl_sync: lanes read within as many.
u32 width_of(Warp& w, const Inst& i, u32 lane) { return kLanes - (w.reg<u32>(w.ops(i)[4])[lane] >> 8 & 0x1F); }

void report_inactive(Warp& w, const Inst& i, const i32* from, u32 reading, u32 taking_part) {
    for (u32 l = 0; l < kLanes; ++l)
        if ((reading >> l & 1) && !(taking_part >> from[l] & 1))
            machine_of(w).report_strict(
                &w, "shfl-inactive-lane",
                format("lane %u reads lane %d, which does not take part: lanes 0x%08x do, and the "
                       "shuffle's width is %u",
                       l, from[l], taking_part, width_of(w, i, l)),
                static_cast<i32>(&i - w.program->insts.data()));
}

template <u32 kMode>
ShuffleSources shuffle_sources(const u32* b, const u32* c) {
    ShuffleSources s;
    u32 valid[kLanes];
    for (u32 l = 0; l < kLanes; ++l) {
        const i32 bound = static_cast<i32>(c[l] & 0x1F), segment = static_cast<i32>(c[l] >> 8 & 0x1F),
                  n = static_cast<i32>(b[l] & 0x1F);
        const i32 lane = static_cast<i32>(l), low = lane & segment, high = low | (bound & ~segment);
        const i32 source = kMode == 0 ? lane - n : kMode == 1 ? lane + n : kMode == 2 ? lane ^ n : low | (n & ~segment);
        const bool ok = kMode == 0 ? source >= high : source <= high;
        s.lane[l] = ok ? source : lane;
        valid[l] = ok;
    }
    s.valid = 0;
    for (u32 l = 0; l < kLanes; ++l) s.valid |= valid[l] << l;
    return s;
}

// What each lane takes from lane `from`. GCC has a load and an insertion for each of them.
void take_from(u32* result, const u32* a, const i32* from) {
#ifdef __AVX512F__
    static_assert(kLanes == 32);
    const __m512i low = _mm512_loadu_si512(a), high = _mm512_loadu_si512(a + 16);
    for (u32 l = 0; l < kLanes; l += 16)  // of an index, the five bits that count
        _mm512_storeu_si512(result + l, _mm512_permutex2var_epi32(low, _mm512_loadu_si512(from + l), high));
#else
    for (u32 l = 0; l < kLanes; ++l) result[l] = a[from[l] & (kLanes - 1)];
#endif
}

// Operands d, p, a, b, c, membermask.
void shuffle(Warp& w, const Meeting& m) {
    constexpr auto kSourcesOf =
        std::array{shuffle_sources<0>, shuffle_sources<1>, shuffle_sources<2>, shuffle_sources<3>};
    alignas(64) u32 gathered[kLanes], result[kLanes];
    const u32* a = m.values(w, 2, gathered);
    for (const Party& p : m.all()) {
        const i32* o = w.ops(*p.inst);
        const ShuffleSources from = kSourcesOf[p.inst->mods >> kShflShift & 3](w.reg<u32>(o[3]), w.reg<u32>(o[4]));
        if (m.lanes != kFullMask) report_inactive(w, *p.inst, from.lane, p.lanes, m.lanes);
        take_from(result, a, from.lane);
        store_lanes(w.reg<u32>(o[0]), result, p.lanes);
        if (o[1] >= 0) w.pred(o[1]) = (w.pred(o[1]) & ~p.lanes) | (from.valid & p.lanes);
    }
}

Flow shfl(Warp& w, const Inst& i, u32 mask) { return meet(w, i, mask, shuffle); }

void order_memory(Warp& w, const Meeting& m) {
    if (machine_of(w).profile != Profile::strict) return;
    if (m.lanes == w.live)
        w.clocks.order_lanes();
    else
        w.clocks.order_lanes(m.lanes);
}

Flow bar_warp(Warp& w, const Inst& i, u32 mask) { return meet(w, i, mask, order_memory); }

}  // namespace

// clang-format off
#define PTXM_OPS_control(X)                                             \
    X(bra, control, control)                                            \
    X(ret, control, control, "ret[.uni=]; exit[.uni=]")                 \
    X(trap, control, control, "trap")                                   \
    X(nop, control, control)                                            \
    X(clock, control, control)                                          \
    X(elect, exchange, control, "elect.sync d:b32|p:pred, members:b32") \
    X(shfl, exchange, control)                                          \
    X(vote, exchange, control)                                          \
    X(activemask, exchange, control, "activemask.b32 d")
// clang-format on

Handler bind_control(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::bra: return bra;
        case Op::ret: return ret;
        case Op::trap: return trap;
        case Op::nop: return nop;
        case Op::clock: return clock;
        case Op::elect: return elect;
        case Op::vote: return vote;
        case Op::activemask: return activemask;
        case Op::shfl: return r.width_dst == 32 ? shfl : nullptr;
        default: return nullptr;
    }
}

// clang-format off
#define PTXM_OPS_barrier(X)                                    \
    X(bar_warp, barrier, barrier, "bar.warp.sync members:b32") \
    X(fence_proxy_async, barrier, barrier)                     \
    X(fence, barrier, barrier)
// clang-format on

Handler bind_barrier(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::bar_warp: return bar_warp;
        case Op::fence_proxy_async:
            return [](Warp& w, const Inst& i, u32 mask) {
                w.clocks.fence_proxy_async(i.mods & kFenceShared, i.mods & kFenceGlobal, w.acting(mask));
                return Flow::next;
            };
        case Op::fence: return nop;
        default: return nullptr;
    }
}

}  // namespace ptxm
