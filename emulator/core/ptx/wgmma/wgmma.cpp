// wgmma: asynchronous matrix operations of four warps (PTX ISA 9.7.15).
//
// The four warps meet at the instruction; the operation then belongs to their warpgroup's agent, which runs them in
// order and writes the accumulator registers when each completes. Conflicts in shared memory are checked at the
// instruction, for each warp against what it has synchronised with: its own 16 rows of A, and all of B. Registers of
// operations in flight, and registers touched since the last wgmma.fence, are followed a unit at a time.
#include "ptx/wgmma/wgmma.hpp"

#include "isa/handlers.hpp"
#include "machine/async/async.hpp"
#include "machine/machine.hpp"
#include "ptx/wgmma/operands.hpp"

namespace ptxm {
namespace {

constexpr u32 kWarps = kWgmmaWarps;

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

// .aligned of wgmma means the warpgroup: its four warps execute the same instructions in the same order.
void follow(Warp& w, Warpgroup& g) {
    if (g.diverged || !machine_of(w).checks) return;
    u64& executed = g.executed[w.index % kWarps];
    const u64 ahead = executed++ - g.passed;
    if (ahead == g.followed.size()) g.followed.push_back(w.pc());
    if (g.followed[ahead] != w.pc()) {
        g.diverged = true;
        machine_of(w).report(
            &w, "wgmma-sync-divergent",
            format("warp %u executes another wgmma instruction than the warps of its warpgroup did", w.index), w.pc(),
            g.followed[ahead]);
    }
    if (ahead || std::ranges::count(g.executed, g.passed)) return;
    g.followed.pop_front();
    g.passed += 1;
}

void complete(Warpgroup& g, const WgmmaOperation& op) {
    execute_wgmma(op);
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

// Compilers move instructions past a fence: the CuTe DSL's GEMM for Hopper sets its accumulators to zero behind it.
// Leniently, one fence since the last wait will do.
void report_unfenced(Warp& w, const char* what) {
    Machine& m = machine_of(w);
    if (m.profile == Profile::lenient && w.wgmma->fences > w.wgmma->fences_at_wait) return;
    m.report(&w, "wgmma-missing-fence",
             format("%s was accessed by another instruction, with no wgmma.fence between that and this wgmma", what),
             w.pc());
}

// The order of register accesses (PTX ISA 9.7.15.7.1): a wgmma.fence after those of other instructions; accumulators of
// one shape may be chained without one.
void check_registers(Warp& w, const WgmmaShape& s, const WgmmaSources& from, bool accumulate) {
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
        machine_of(w).report_strict(&w, "uninitialised-register",
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

void mark_registers(Warp& w, const WgmmaShape& s, const WgmmaSources& from, u32 clock) {
    WgmmaRegisters& r = *w.wgmma;
    if (s.a_registers)
        for (u32 k = 0; k < from.a_count; ++k) r.in_flight[static_cast<u32>(from.a[k])] = {clock, 0};
    for (u32 k = 0; k < s.d_registers(); ++k) r.in_flight[static_cast<u32>(from.d[k])] = {clock, shape_key(s)};
}

// What a warp checks for itself when it comes to the instruction.
void check_issue(Warp& w, const Warpgroup& g, const WgmmaShape& s, const WgmmaSources& from, u64 a, u64 b,
                 bool accumulate) {
    const u32 quarter = w.index % kWarps;
    const Accessor who{g.agent, g.issued + 1, static_cast<u32>(w.pc()), false};
    if (!s.a_registers) check_wgmma_operand(w, decode_wgmma_descriptor(a, "A"), s.a_tile(quarter), who, "A");
    check_wgmma_operand(w, decode_wgmma_descriptor(b, "B"), s.b_tile(), who, "B");
    if (machine_of(w).checks) check_registers(w, s, from, accumulate);
}

// The last of the four warps has come: the operation starts.
void start(Warp& w, Warpgroup& g, const Inst& i, const WgmmaShape& s) {
    Cta& cta = *w.cta;
    WgmmaOperation op;
    op.shape = s;
    const u32 first = w.index / kWarps * kWarps;
    const WgmmaSources from = wgmma_sources(w.ops(i), s);
    const auto metadata = s.sparse ? std::make_shared<WgmmaMetadata>() : nullptr;
    op.metadata = metadata;
    for (u32 k = 0; k < kWarps; ++k) {
        Warp& each = cta.warps[first + k];
        if (metadata) std::memcpy((*metadata)[k].data(), each.reg<u32>(from.metadata), sizeof(*metadata)[k]);
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
    const WgmmaSources from = wgmma_sources(w.ops(i), s);
    const u64 a = s.a_registers ? 0 : uniform<u64>(w, from.a[0], "the descriptor of A");
    const u64 b = uniform<u64>(w, from.b, "the descriptor of B");
    if (g.arrived && g.pc != w.pc())
        throw Fault("wgmma-divergent",
                    format("warp %u executes another wgmma than the warps of its warpgroup that wait (at line %u)",
                           w.index, w.program->insts[static_cast<u32>(g.pc)].line));
    check_issue(w, g, s, from, a, b, uniform_predicate(w, from.scale));
    mark_registers(w, s, from, g.issued + 1);
    r.issued = g.issued + 1;
    follow(w, g);
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
    follow(w, warpgroup_of(w));
    registers_of(w).fences += 1;
    return Flow::next;
}

Flow commit(Warp& w, const Inst&, u32 mask) {
    need_full_warp(mask, "wgmma.commit_group");
    follow(w, warpgroup_of(w));
    WgmmaRegisters& r = registers_of(w);
    r.groups.push_back(r.issued);
    return Flow::next;
}

Flow wait(Warp& w, const Inst& i, u32 mask) {
    need_full_warp(mask, "wgmma.wait_group");
    Warpgroup& g = warpgroup_of(w);
    WgmmaRegisters& r = registers_of(w);
    const std::size_t pending = static_cast<std::size_t>(i.immediate);
    if (r.groups.size() <= pending) {
        r.fences_at_wait = r.fences;
        follow(w, g);
        return Flow::next;
    }
    const u32 target = r.groups[r.groups.size() - 1 - pending];
    if (g.completed < target) {
        w.fragment().wait = Wait::async_group;
        return Flow::stay;
    }
    r.fences_at_wait = r.fences;
    follow(w, g);
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

// clang-format off
#define PTXM_OPS_wgmma(X)          \
    X(wgmma, matrix, wgmma)        \
    X(wgmma_fence, matrix, wgmma)  \
    X(wgmma_commit, matrix, wgmma) \
    X(wgmma_wait, matrix, wgmma)
// clang-format on

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
