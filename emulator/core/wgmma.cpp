// wgmma: asynchronous matrix operations of four warps (PTX ISA 9.7.15).
//
// The four warps meet at the instruction; the operation then belongs to their warpgroup's agent, which runs them in
// order and writes the accumulator registers when each completes. Conflicts in shared memory are checked at the
// instruction, for each warp against what it has synchronised with: its own 16 rows of A, and all of B. Registers of
// operations in flight, and registers touched since the last wgmma.fence, are followed a unit at a time.
//
// Sums are those of mma.sync (warp_mma.cpp): fused products in f32 in the order of k.
#include <algorithm>
#include <limits>

#include "handlers.hpp"
#include "wgmma_operands.hpp"

namespace ptxm {
namespace {

constexpr u32 kWarps = 4, kRows = 16;  // of a warpgroup; of a warp's part of D

Warpgroup& warpgroup_of(Warp& w) {
    Cta& cta = *w.cta;
    const u32 first = w.index / kWarps * kWarps;
    if (first + kWarps > cta.warps.size())
        throw Fault("wgmma-partial-warpgroup", format("wgmma in warp %u, whose warpgroup has %zu warps; it needs 4",
                                                      w.index, cta.warps.size() - first));
    if (cta.warpgroups.empty()) cta.warpgroups.resize((cta.warps.size() + kWarps - 1) / kWarps);
    Warpgroup& g = cta.warpgroups[w.index / kWarps];
    if (!g.has_agent) {
        g.has_agent = true;
        g.agent =
            cta.cluster->new_agent({AgentKind::warpgroup, static_cast<u16>(cta.rank), static_cast<u16>(first), 0});
    }
    return g;
}

WgmmaRegisters& registers_of(Warp& w) {
    if (!w.wgmma) {
        w.wgmma = std::make_unique<WgmmaRegisters>();
        w.wgmma->in_flight.resize(w.program->units);
        w.wgmma->touched.resize(w.program->units);
    }
    return *w.wgmma;
}

// One operation in the queue of a warpgroup.
struct Operation {
    WgmmaShape shape;
    const i32* units[kWarps];  // operands of the instruction, the same for each warp
    Warp* warps[kWarps];
    u64 a = 0, b = 0;
    bool accumulate = false;
};

// Operands: D registers, then A (registers or descriptor), B descriptor, scale-d.
struct Sources {
    const i32 *d, *a;
    i32 b, scale;
    u32 a_count;
};

Sources sources_of(const i32* o, const WgmmaShape& s) {
    const u32 nd = s.d_registers(), na = s.a_registers ? 4 : 1;
    return {o, o + nd, o[nd + na], o[nd + na + 1], na};
}

constexpr u32 kMaxK = 32, kMaxN = 256;

struct Tiles {
    float a[kRows * kMaxK], b[kMaxK * kMaxN], d[kRows * kMaxN];
};
struct IntegerTiles {
    i32 a[kRows * kMaxK], b[kMaxK * kMaxN], d[kRows * kMaxN];
};

template <class T, class Decode>
void gather_b(const Operation& op, T* b, Decode decode) {
    const WgmmaShape& s = op.shape;
    each_wgmma_element(*op.warps[0]->cta, decode_wgmma_descriptor(op.b, "B"), s.b_mn_major, s.b_bytes(), 0, s.n,
                       [&](u32 n, u32 k, u32 raw) { b[k * kMaxN + n] = decode(s.b, raw); });
}

template <class T, class Decode>
void gather_a(const Operation& op, u32 warp, T* a, Decode decode) {
    const WgmmaShape& s = op.shape;
    Warp& w = *op.warps[warp];
    if (!s.a_registers) {
        each_wgmma_element(*w.cta, decode_wgmma_descriptor(op.a, "A"), s.a_mn_major, s.a_bytes(), warp * kRows, kRows,
                           [&](u32 m, u32 k, u32 raw) { a[m % kRows * kMaxK + k] = decode(s.a, raw); });
        return;
    }
    const Sources from = sources_of(op.units[warp], s);
    const u32 bits = element::bits(s.a), per = 32 / bits;
    for (u32 r = 0; r < 4; ++r) {
        const u32* raw = w.reg<u32>(from.a[r]);
        for (u32 l = 0; l < kLanes; ++l) {
            for (u32 e = 0; e < per; ++e) {
                const fragment::Position p = fragment::a(kRows, per, l, r, e);
                a[p.row * kMaxK + p.column] = decode(s.a, raw[l] >> (e * bits));
            }
        }
    }
}

// f(element, lane, place in a 16 x 256 tile) for a warp's part of D.
template <class F>
void each_d(u32 n, F f) {
    for (u32 e = 0; e < n / 2; ++e) {
        for (u32 l = 0; l < kLanes; ++l) {
            const fragment::Position p = fragment::d(l, e);
            f(e, l, p.row * kMaxN + p.column);
        }
    }
}

void multiply(const WgmmaShape& s, const float* a, const float* b, float* d) {
    for (u32 row = 0; row < kRows; ++row) {
        for (u32 k = 0; k < s.k; ++k) {
            const float x = a[row * kMaxK + k];
            for (u32 n = 0; n < s.n; ++n) d[row * kMaxN + n] = __builtin_fmaf(x, b[k * kMaxN + n], d[row * kMaxN + n]);
        }
    }
}

void execute_float(const Operation& op) {
    static thread_local Tiles t;
    const WgmmaShape& s = op.shape;
    gather_b(op, t.b, [&](MatrixType type, u32 raw) { return s.b_scale * element::decode(type, raw); });
    for (u32 warp = 0; warp < kWarps; ++warp) {
        Warp& w = *op.warps[warp];
        const i32* d = op.units[warp];
        gather_a(op, warp, t.a, [&](MatrixType type, u32 raw) { return s.a_scale * element::decode(type, raw); });
        each_d(s.n, [&](u32 e, u32 l, u32 at) {
            t.d[at] = !op.accumulate           ? 0.0f
                      : s.d == MatrixType::f16 ? element::from_half(w.reg<u16>(d[e / 2])[2 * l + e % 2])
                                               : w.reg<float>(d[e])[l];
        });
        multiply(s, t.a, t.b, t.d);
        each_d(s.n, [&](u32 e, u32 l, u32 at) {
            if (s.d == MatrixType::f16)
                w.reg<u16>(d[e / 2])[2 * l + e % 2] = element::to_half(t.d[at]);
            else
                w.reg<float>(d[e])[l] = t.d[at];
        });
    }
}

// Sums of 32 products of 8-bit values are exact in 32 bits; only the accumulator can overflow.
void execute_integer(const Operation& op) {
    static thread_local IntegerTiles t;
    const WgmmaShape& s = op.shape;
    gather_b(op, t.b, element::decode_integer);
    for (u32 warp = 0; warp < kWarps; ++warp) {
        Warp& w = *op.warps[warp];
        gather_a(op, warp, t.a, element::decode_integer);
        std::fill(std::begin(t.d), std::end(t.d), 0);
        for (u32 row = 0; row < kRows; ++row)
            for (u32 k = 0; k < s.k; ++k)
                for (u32 n = 0; n < s.n; ++n) t.d[row * kMaxN + n] += t.a[row * kMaxK + k] * t.b[k * kMaxN + n];
        each_d(s.n, [&](u32 e, u32 l, u32 at) {
            i32& d = w.reg<i32>(op.units[warp][e])[l];
            const i64 sum = i64{t.d[at]} + (op.accumulate ? d : 0);
            d = s.saturate ? static_cast<i32>(
                                 std::clamp<i64>(sum, std::numeric_limits<i32>::min(), std::numeric_limits<i32>::max()))
                           : static_cast<i32>(static_cast<u64>(sum));
        });
    }
}

void complete(Warpgroup& g, const Operation& op) {
    if (op.shape.d == MatrixType::s32)
        execute_integer(op);
    else
        execute_float(op);
    g.completed += 1;
    for (Warp* w : op.warps) {
        for (Fragment& f : w->fragments) {
            if (f.wait != Wait::async_group) continue;
            f.wait = Wait::none;
            w->time = std::max(w->time, w->cta->cluster->now);
        }
    }
}

template <class T>
T uniform(Warp& w, i32 unit, const char* what) {
    const T* v = w.reg<T>(unit);
    for (u32 l = 1; l < kLanes; ++l)
        if (v[l] != v[0])
            throw Fault("wgmma-nonuniform",
                        format("%s of a wgmma differs between lanes 0 and %u of warp %u", what, l, w.index));
    return v[0];
}

bool uniform_predicate(Warp& w, i32 unit) {
    const u32 p = w.pred(unit);
    if (p != 0 && p != kFullMask)
        throw Fault("wgmma-nonuniform", format("scale-d of a wgmma differs between lanes of warp %u", w.index));
    return p != 0;
}

u32 shape_key(const WgmmaShape& s) { return s.n << 8 | static_cast<u32>(s.d) << 1 | 1; }

void report_in_flight(Warp& w, const char* what) {
    machine_of(w).report(&w, "wgmma-register-in-flight",
                         format("%s: no wgmma.wait_group since the wgmma that uses it", what), w.pc());
}

void report_unfenced(Warp& w, const char* what) {
    machine_of(w).report(
        &w, "wgmma-missing-fence",
        format("%s was accessed by another instruction, with no wgmma.fence between that and this wgmma", what),
        w.pc());
}

// The order of register accesses (PTX ISA 9.7.15.7.1): a wgmma.fence after those of other instructions; accumulators of
// one shape may be chained without one.
void check_registers(Warp& w, const WgmmaShape& s, const Sources& from, bool accumulate) {
    WgmmaRegisters& r = *w.wgmma;
    const u32 key = shape_key(s);
    bool unfenced = r.fences == 0, busy = false, unset = false;
    for (u32 k = 0; k < s.d_registers(); ++k) {
        const u32 u = static_cast<u32>(from.d[k]);
        unfenced = unfenced || r.touched[u] == r.fences;
        busy = busy || (r.in_flight[u].clock && r.in_flight[u].shape != key);
        unset = unset || (accumulate && w.initialised[u] != kFullMask);
    }
    if (unfenced) report_unfenced(w, "an accumulator register");
    if (busy) report_in_flight(w, "the accumulator is in use by an operation of another shape");
    if (unset)
        machine_of(w).report(&w, "uninitialised-register",
                             "an accumulator register is read before anything was written to it", w.pc());
    if (!s.a_registers) return;
    unfenced = busy = false;
    for (u32 k = 0; k < from.a_count; ++k) {
        const u32 u = static_cast<u32>(from.a[k]);
        unfenced = unfenced || r.touched[u] == r.fences;
        busy = busy || (r.in_flight[u].clock && r.in_flight[u].shape != 0);
    }
    if (unfenced && r.fences) report_unfenced(w, "a register of A");
    if (busy) report_in_flight(w, "a register of A is the accumulator of an operation in flight");
}

void mark_registers(Warp& w, const WgmmaShape& s, const Sources& from, u32 clock) {
    WgmmaRegisters& r = *w.wgmma;
    if (s.a_registers)
        for (u32 k = 0; k < from.a_count; ++k) r.in_flight[static_cast<u32>(from.a[k])] = {clock, 0};
    for (u32 k = 0; k < s.d_registers(); ++k) r.in_flight[static_cast<u32>(from.d[k])] = {clock, shape_key(s)};
}

// What a warp checks for itself when it comes to the instruction.
void check_issue(Warp& w, const Warpgroup& g, const WgmmaShape& s, const Sources& from, u64 a, u64 b, bool accumulate) {
    const u32 quarter = w.index % kWarps;
    const Accessor who{g.agent, g.issued + 1, static_cast<u32>(w.pc()), false};
    if (!s.a_registers)
        check_wgmma_operand(w, decode_wgmma_descriptor(a, "A"), s.a_mn_major, s.a_bytes(), quarter * kRows, kRows, who,
                            "A");
    check_wgmma_operand(w, decode_wgmma_descriptor(b, "B"), s.b_mn_major, s.b_bytes(), 0, s.n, who, "B");
    if (machine_of(w).checks) check_registers(w, s, from, accumulate);
}

// The last of the four warps has come: the operation starts.
void start(Warp& w, Warpgroup& g, const Inst& i, const WgmmaShape& s) {
    Cta& cta = *w.cta;
    Operation op;
    op.shape = s;
    const u32 first = w.index / kWarps * kWarps;
    const Sources from = sources_of(w.ops(i), s);
    for (u32 k = 0; k < kWarps; ++k) {
        Warp& each = cta.warps[first + k];
        op.warps[k] = &each;
        op.units[k] = each.ops(i);
        const u64 a = s.a_registers ? 0 : *each.reg<u64>(from.a[0]), b = *each.reg<u64>(from.b);
        const bool accumulate = each.pred(from.scale) != 0;
        if (k && (a != op.a || b != op.b || accumulate != op.accumulate))
            throw Fault("wgmma-nonuniform",
                        format("warps %u and %u of a warpgroup give a wgmma different descriptors or scale-d", first,
                               each.index));
        op.a = a;
        op.b = b;
        op.accumulate = accumulate;
    }
    g.issued += 1;
    machine_of(w).stats.mma += 1;
    const u64 begin = std::max(g.free, w.time);
    g.free = begin + s.n / 4;
    // Operations complete in order, whichever of their completions comes first.
    g.queue.push_back([&g, op] { complete(g, op); });
    start_async(w, false, g.free - w.time, [&g] {
        const std::function<void()> next = std::move(g.queue.front());
        g.queue.pop_front();
        next();
    });
}

Flow wgmma(Warp& w, const Inst& i, u32 mask) {
    need_full_warp(mask, "wgmma");
    Warpgroup& g = warpgroup_of(w);
    WgmmaRegisters& r = registers_of(w);
    if (r.met) {
        r.met = false;
        return Flow::next;
    }
    const WgmmaShape s = wgmma_shape(i);
    const Sources from = sources_of(w.ops(i), s);
    const u64 a = s.a_registers ? 0 : uniform<u64>(w, from.a[0], "the descriptor of A");
    const u64 b = uniform<u64>(w, from.b, "the descriptor of B");
    if (g.arrived && g.pc != w.pc())
        throw Fault("wgmma-divergent",
                    format("warp %u executes another wgmma than the warps of its warpgroup that wait (at line %u)",
                           w.index, w.program->insts[static_cast<u32>(g.pc)].line));
    check_issue(w, g, s, from, a, b, uniform_predicate(w, from.scale));
    mark_registers(w, s, from, g.issued + 1);
    r.issued = g.issued + 1;
    g.pc = w.pc();
    g.arrived |= 1u << w.index % kWarps;
    if (g.arrived != (1u << kWarps) - 1) {
        w.fragment().wait = Wait::warpgroup;
        return Flow::stay;
    }
    g.arrived = 0;
    const u32 first = w.index / kWarps * kWarps;
    for (u32 k = first; k < first + kWarps; ++k) {
        Warp& other = w.cta->warps[k];
        if (&other == &w) continue;
        other.wgmma->met = true;
        other.time = std::max(other.time, w.time);
        for (Fragment& f : other.fragments)
            if (f.wait == Wait::warpgroup) f.wait = Wait::none;
    }
    start(w, g, i, s);
    return Flow::next;
}

Flow fence(Warp& w, const Inst&, u32 mask) {
    need_full_warp(mask, "wgmma.fence");
    warpgroup_of(w);
    registers_of(w).fences += 1;
    return Flow::next;
}

Flow commit(Warp& w, const Inst&, u32 mask) {
    need_full_warp(mask, "wgmma.commit_group");
    warpgroup_of(w);
    WgmmaRegisters& r = registers_of(w);
    r.groups.push_back(r.issued);
    return Flow::next;
}

Flow wait(Warp& w, const Inst& i, u32 mask) {
    need_full_warp(mask, "wgmma.wait_group");
    Warpgroup& g = warpgroup_of(w);
    WgmmaRegisters& r = registers_of(w);
    const std::size_t pending = static_cast<std::size_t>(i.immediate);
    if (r.groups.size() <= pending) return Flow::next;
    const u32 target = r.groups[r.groups.size() - 1 - pending];
    if (g.completed < target) {
        w.fragment().wait = Wait::async_group;
        return Flow::stay;
    }
    while (r.groups.size() > pending) r.groups.pop_front();
    for (WgmmaRegisters::Use& use : r.in_flight)
        if (use.clock <= target) use.clock = 0;
    if (target) {
        w.clocks.generic.raise(g.agent, target);
        w.clocks.async.raise(g.agent, target);
    }
    return Flow::next;
}

}  // namespace

void use_wgmma_registers(Warp& w, const Inst& i) {
    if (!machine_of(w).checks || i.handler == wgmma) return;
    WgmmaRegisters& r = *w.wgmma;
    const i32* o = w.ops(i);
    for (u32 k = 0; k < u32{i.n_dst} + i.n_src; ++k) {
        if (o[k] < 0) continue;
        const u32 u = static_cast<u32>(o[k]);
        r.touched[u] = r.fences;
        const WgmmaRegisters::Use& use = r.in_flight[u];
        if (use.clock)
            report_in_flight(w, use.shape ? (k < i.n_dst ? "an accumulator in flight is written"
                                                         : "an accumulator in flight is read")
                                          : (k < i.n_dst ? "a register of A of an operation in flight is written"
                                                         : "a register of A of an operation in flight is read"));
    }
}

Handler bind_wgmma(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::wgmma: return wgmma;
        case Op::wgmma_fence: return fence;
        case Op::wgmma_commit: return commit;
        case Op::wgmma_wait: return wait;
        default: return nullptr;
    }
}

}  // namespace ptxm
