#include "machine/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "machine/addresses.hpp"
#include "machine/machine.hpp"
#include "machine/observer.hpp"
#include "machine/warp/convergence.hpp"
#include "ptx/tcgen05/allocation.hpp"
#include "ptx/tcgen05/tensor_load_store.hpp"
#include "ptx/wgmma/wgmma.hpp"
#include "timing/recorder.hpp"

namespace ptxm {
namespace {

constexpr u32 kSlice = 64;
// Warp instructions without progress after which other clusters get their turn. Progress: a barrier's phase or an
// asynchronous operation completes, a polled value changes, a warp exits or executes so much without a failed poll.
constexpr u64 kPolling = 4000, kWorking = 256;
// The same where every slice of a warp has ended in a failed poll: so many for each warp.
constexpr u64 kFailedPolls = 8;

u64 pick(Cluster& c, u64 n) { return c.random() % n; }

// The place of the pending operation to complete now, or kNone, where `w` is the warp that could run. `forced`: no warp
// is to, so something must.
u32 due(Cluster& cluster, const Warp* w, bool forced) {
    const Schedule schedule = cluster.machine->schedule;
    if (cluster.pending.empty()) return AsyncQueue::kNone;
    if (draws(schedule)) {
        if (schedule == Schedule::random && !forced && pick(cluster, 4) != 0) return AsyncQueue::kNone;
        static thread_local std::vector<u32> places;
        places.clear();
        cluster.pending.eligible(places);
        if (schedule == Schedule::random) return places[pick(cluster, places.size())];
        const u32 first =
            *std::ranges::max_element(places, {}, [&](u32 place) { return cluster.pending.at(place).priority; });
        const bool waits = !forced && !w->yields && cluster.pending.at(first).priority < w->priority;
        return waits ? AsyncQueue::kNone : first;
    }
    const u64 now = w ? w->time : 0;
    const bool waits = schedule == Schedule::late || cluster.pending.earliest() > now;
    return waits && !forced ? AsyncQueue::kNone : cluster.pending.next();
}

void complete(Cluster& cluster, u32 place) {
    const AsyncOp op = cluster.pending.take(place);
    cluster.now = std::max(cluster.now, op.time);
    cluster.note_progress();
    finish_async(cluster, op);
}

bool ready(const Warp& w) {
    for (const Fragment& f : w.fragments)
        if (f.wait == Wait::none) return true;
    return false;
}

// Those that only poll come last, whatever their priorities.
Warp* highest(Cluster& cluster) {
    Warp* best = nullptr;
    for (auto& cta : cluster.ctas)
        for (Warp& w : cta->warps)
            if (w.live && ready(w) &&
                (!best || std::pair(!w.yields, w.priority) > std::pair(!best->yields, best->priority)))
                best = &w;
    return best;
}

// Once all that can go on only poll, and when another has gone on: they may look again.
void look_again(Cluster& cluster) {
    for (auto& cta : cluster.ctas)
        for (Warp& w : cta->warps) w.yields = false;
}

Warp* next_warp(Cluster& cluster) {
    Machine& m = *cluster.machine;
    if (m.schedule == Schedule::pct) return highest(cluster);
    Warp* best = nullptr;
    u64 candidates = 0;
    for (auto& cta : cluster.ctas) {
        for (Warp& w : cta->warps) {
            if (!w.live || !ready(w)) continue;
            if (m.schedule == Schedule::random) {
                if (pick(cluster, ++candidates) == 0) best = &w;
            } else if (!best || w.time < best->time) {
                best = &w;
            }
        }
    }
    return best;
}

// Nothing can go on: the time that a try_wait suspends its thread for is over. CUTLASS's producers ask once whether the
// next stage is free and copy to this one then; with one stage, they are the same. An instruction that has run out of
// time once since the last progress only tries again: if there is no other, nothing will ever go on.
bool time_out_waits(Cluster& cluster) {
    std::erase_if(cluster.timed_out, [&](const TimedOut& t) { return t.progress != cluster.progress; });
    bool any = false;
    for (auto& cta : cluster.ctas) {
        for (Warp& w : cta->warps) {
            for (Fragment& f : w.fragments) {
                const auto again = [&](const TimedOut& t) { return t.warp == &w && t.pc == f.pc; };
                if (f.wait != Wait::mbarrier || std::ranges::any_of(cluster.timed_out, again)) continue;
                cluster.timed_out.push_back({&w, f.pc, cluster.progress});
                f.wait = Wait::none;
                f.wait_timed_out = any = true;
            }
        }
    }
    return any;
}

// Instructions that only compute pass an undefined value on: it matters where it reaches memory or control flow.
bool computes(const Inst& i) {
    switch (static_cast<Op>(i.op)) {
        case Op::cvta:
        case Op::cvta_to:
        case Op::isspacep:
        case Op::mapa:
        case Op::getctarank: return false;  // addresses
        default: return i.kind <= static_cast<u8>(InstructionClass::conversion);
    }
}

// The lanes in which the bytes that prmt takes have no value. It counts as a pack of them, but not of what a load left.
u32 undefined_bytes(Warp& w, const Inst& i, const i32* s, const std::array<u32, 3>& undefined) {
    std::array<u32, 2> taken{kFullMask, kFullMask};
    if (!i.immediate) {  // no mode: four selectors of bytes, of which bit 2 says whether of b
        const u32* selectors = w.reg<u32>(s[2]);
        taken = {};
        for (u32 l = 0; l < kLanes; ++l)
            for (u32 k = 0; k < 4; ++k) taken[selectors[l] >> (4 * k + 2) & 1] |= u32{1} << l;
    }
    u32 all = undefined[0] | undefined[1], loaded = 0;
    for (u32 k = 0; k < 2; ++k) {
        all &= undefined[k] | ~taken[k];
        if (!w.undefined.empty() && s[k] >= 0) loaded |= taken[k] & undefined[k] & w.undefined[static_cast<u32>(s[k])];
    }
    return undefined[2] | all | loaded;
}

// The lanes in which a computing instruction's result has no value. A pack counts as defined if a part of it is:
// compilers put a value beside a half that nobody uses.
u32 undefined_result(Warp& w, const Inst& i, const i32* s, u32 mask) {
    const auto undefined = [&](u32 k) { return s[k] < 0 ? 0 : mask & ~w.initialised[static_cast<u32>(s[k])]; };
    const Op op = static_cast<Op>(i.op);
    if (op == Op::selp) return undefined(2) | (w.pred(s[2]) & undefined(0)) | (~w.pred(s[2]) & undefined(1));
    if (i.width_dst == 1 && (op == Op::and_ || op == Op::or_)) {
        // A side that decides alone: moderngpu's merges ask first whether there is a key, and compare it all the same.
        const u32 a = undefined(0), b = undefined(1), decides = op == Op::or_ ? kFullMask : 0;
        const u32 decided = (~a & ~(w.pred(s[0]) ^ decides)) | (~b & ~(w.pred(s[1]) ^ decides));
        return (a | b) & ~decided;
    }
    if (op == Op::prmt) return undefined_bytes(w, i, s, {undefined(0), undefined(1), undefined(2)});
    u32 any = 0, all = mask;
    for (u32 k = 0; k < i.n_src; ++k) {
        any |= undefined(k);
        all &= undefined(k);
    }
    return op == Op::pack ? all : any;
}

// The lanes to which a shuffle brings one of these (PTX ISA 9.7.9.6).
u32 shuffled(Warp& w, const Inst& i, const i32* s, u32 lanes) {
    u32 result = 0;
    for (i32 l = 0; l < static_cast<i32>(kLanes); ++l) {
        const u32 packed = w.reg<u32>(s[2])[l];
        const i32 b = static_cast<i32>(w.reg<u32>(s[1])[l] & 31), segment = static_cast<i32>(packed >> 8 & 31);
        const i32 first = l & segment, last = first | (static_cast<i32>(packed & 31) & ~segment);
        i32 from = l;
        switch (i.mods >> kShflShift & 3) {
            case 0: from = l - b >= last ? l - b : l; break;
            case 1: from = l + b <= last ? l + b : l; break;
            case 2: from = (l ^ b) <= last ? l ^ b : l; break;
            default: from = (first | (b & ~segment)) <= last ? first | (b & ~segment) : l;
        }
        result |= (lanes >> from & 1) << l;
    }
    return result;
}

// What becomes of a matrix's elements shows only where its rows and columns are used.
bool multiplies(Op op) { return op == Op::mma_sync || op == Op::wgmma || op == Op::movmatrix || op == Op::tmem_st; }

void report_unwritten(Warp& w, u32 lanes) {
    if (w.doubt.rule) {
        machine_of(w).report(&w, w.doubt.rule, w.doubt.message + "; its value is used", w.doubt.pc, w.doubt.other);
        return;
    }
    struct Told {
        const char *rule, *memory;
    };
    static constexpr Told kTold[] = {
        {"uninitialised-shared", "shared"}, {"uninitialised-global", "global"}, {"uninitialised-local", "local"}};
    const Told& told = kTold[static_cast<u32>(w.undefined_in)];
    machine_of(w).report(
        &w, told.rule,
        format("lanes 0x%08x use here what was loaded from %s memory that nothing has written", lanes, told.memory),
        w.pc(), w.undefined_pc);
}

// A thread may copy what it has not written from its local memory to there, or to a function: structs have gaps. Block
// scans of public kernels take the sums of all warps that there could be through shared memory.
bool copies_locally(Warp& w, const Inst& i, u32 mask) {
    if (static_cast<Op>(i.op) != Op::st && static_cast<Op>(i.op) != Op::st_sync) return false;
    // follow_store (ptx/memory) notes it there.
    const bool shared = static_cast<Op>(i.op) == Op::st && w.undefined_in == Unwritten::shared && !w.doubt.rule &&
                        machine_of(w).profile == Profile::lenient;
    const Space space = space_of(i);
    if (space == Space::shared) return shared;
    if (space != Space::generic || i.width_dst != 64) return space == Space::local || space == Space::param;
    const u64* base = w.reg<u64>(w.ops(i)[0]);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const u64 at = base[l] + static_cast<u64>(i.immediate);
        const bool own = window_of(at) == Space::shared_cluster &&
                         static_cast<u32>(at & ~kWindowMask) >> kSharedRankShift == w.cta->rank;
        if (window_of(at) != Space::local && !(own && shared)) return false;
    }
    return true;
}

// The predicate of a shfl says whether there was a lane to take from, whatever that has.
bool takes_values(const Inst& i, u32 destination) { return !destination || static_cast<Op>(i.op) != Op::shfl; }

// A warp may load from its local memory, and in the lenient profile from any, what nothing has written, and compute
// with it, as long as nothing comes of it. Returns the lanes in which the result has no value.
u32 follow_unwritten(Warp& w, const Inst& i, const i32* s, u32 mask) {
    const Op op = static_cast<Op>(i.op);
    u32 lanes = 0;
    for (u32 k = 0; k < i.n_src; ++k)
        if (s[k] >= 0) lanes |= w.undefined[static_cast<u32>(s[k])] & ~w.initialised[static_cast<u32>(s[k])];
    u32 undefined = 0;
    if (computes(i))
        undefined = undefined_result(w, i, s, mask);
    else if (op == Op::shfl)
        undefined = shuffled(w, i, s, lanes) & mask;
    else if (!multiplies(op) && !copies_locally(w, i, mask) && (lanes & mask))
        report_unwritten(w, lanes & mask);
    for (u32 k = 0; k < i.n_dst; ++k) {
        const i32 d = w.ops(i)[k];
        if (d >= 0) {
            u32& known = w.undefined[static_cast<u32>(d)];
            known = (known & ~mask) | (takes_values(i, k) ? undefined & (op == Op::shfl ? undefined : lanes) : 0);
        }
    }
    return undefined;
}

// Reports sources without a value, or returns the lanes in which the result has none.
[[gnu::noinline]] u32 report_sources(Warp& w, const Inst& i, u32 mask) {
    const i32* s = w.ops(i) + i.n_dst;
    const u32 unwritten = w.undefined.empty() ? 0 : follow_unwritten(w, i, s, mask);
    for (u32 k = 0; k < i.n_src; ++k) {
        if (s[k] < 0) continue;
        const u32 followed = w.undefined.empty() ? 0 : w.undefined[static_cast<u32>(s[k])];
        if (!(mask & ~w.initialised[static_cast<u32>(s[k])])) continue;
        if (computes(i)) return undefined_result(w, i, s, mask);
        if (machine_of(w).profile != Profile::strict || !(mask & ~w.initialised[static_cast<u32>(s[k])] & ~followed))
            continue;
        machine_of(w).report_strict(&w, "uninitialised-register",
                                    format("source operand %u has no value in lanes 0x%08x: nothing was written to it, "
                                           "or it was computed from a register without one",
                                           k + 1, mask & ~w.initialised[static_cast<u32>(s[k])]),
                                    w.pc());
    }
    return unwritten;
}

[[gnu::noinline]] void report_guard(Warp& w, i32 guard, u32 mask) {
    if (!w.undefined.empty()) {
        const u32 lanes = mask & w.undefined[static_cast<u32>(guard)] & ~w.initialised[static_cast<u32>(guard)];
        if (lanes) return report_unwritten(w, lanes);
    }
    machine_of(w).report_strict(&w, "uninitialised-register",
                                "the guard predicate has no value: nothing was written to it, or it compared a "
                                "register without one",
                                w.pc());
}

[[gnu::always_inline]] inline u32 check_sources(Warp& w, const Inst& i, u32 mask) {
    const i32* s = w.ops(i) + i.n_dst;
    const u32* initialised = w.initialised.data();
    const auto lacking = [&](u32 k) { return s[k] < 0 ? 0 : ~initialised[s[k]]; };
    u32 missing = 0;
    switch (i.n_src) {  // most have few: no loop that the compiler would vectorise
        default:
            for (u32 k = 3; k < i.n_src; ++k) missing |= lacking(k);
            [[fallthrough]];
        case 3: missing |= lacking(2); [[fallthrough]];
        case 2: missing |= lacking(1); [[fallthrough]];
        case 1: missing |= lacking(0); [[fallthrough]];
        case 0: break;
    }
    return missing & mask ? report_sources(w, i, mask) : 0;
}

[[gnu::always_inline]] inline void mark_destinations(Warp& w, const Inst& i, u32 mask, u32 undefined) {
    const i32* d = w.ops(i);
    u32* initialised = w.initialised.data();
    const auto mark = [&](u32 k, u32 without) {
        if (d[k] >= 0) initialised[d[k]] = (initialised[d[k]] | mask) & ~without;
    };
    if (i.n_dst) mark(0, undefined);  // most have one
    for (u32 k = 1; k < i.n_dst; ++k) mark(k, takes_values(i, k) ? undefined : 0);
}

// Whether instructions leave a mark when they are executed, or somebody looks on.
enum class Looks : u8 { none, marks, observer };

// One instruction of the current fragment. False when the fragment cannot go on (it waits, split, joined or exited).
template <Looks L>
[[gnu::always_inline]] inline bool step(Machine& m, Warp& w, bool checks) {
    Fragment& f = w.fragment();
    if (f.pc == f.join_pc) {
        reach_join(w);
        return false;
    }
    const Inst& i = w.program->insts[static_cast<u32>(f.pc)];
    u32 mask = f.mask;
    if (i.guard >= 0) {
        if (checks && (mask & ~w.initialised[static_cast<u32>(i.guard)])) report_guard(w, i.guard, mask);
        const u32 p = w.pred(i.guard);
        mask &= i.guard_negated ? ~p : p;
        if (mask == 0) {
            m.stats.executed[i.kind] += 1;
            f.pc += 1;
            return true;
        }
    }
    if (i.aligned) {
        if (i.guard >= 0 && mask != f.mask)
            throw Fault(
                "nonconvergent-aligned",
                format("an .aligned instruction is predicated off in lanes 0x%08x of its warp", f.mask & ~mask));
        if (!converge(w, w.live)) return false;
        mask = w.fragment().mask;
    }
    const u32 undefined = checks ? check_sources(w, i, mask) : 0;
    if (w.wgmma) use_wgmma_registers(w, i);
    if (w.loaded.open) use_loaded_registers(w, i);
    [[maybe_unused]] const i32 pc = w.fragment().pc;
    [[maybe_unused]] Recorder* recorder = nullptr;
    if constexpr (L != Looks::none) {
        if (m.watched) m.executed[static_cast<u32>(pc)] = 1;
        recorder = m.recorder.get();
        if (recorder) recorder->look(w, i, mask);
    }
    if constexpr (L == Looks::observer) Observer::of(m)->step(w, i, mask);
    const Flow flow = i.handler(w, i, mask);
    if constexpr (L != Looks::none)
        if (recorder && flow != Flow::stay) recorder->keep(w, i, pc, mask);
    m.stats.executed[i.kind] += flow != Flow::stay;
    if constexpr (L == Looks::observer) Observer::of(m)->stepped(w, i, mask, pc, flow != Flow::stay);
    if (flow != Flow::next) return flow == Flow::jump;
    Fragment& after = w.fragment();
    if (checks) mark_destinations(w, i, i.aligned ? mask : after.mask & (i.guard >= 0 ? mask : after.mask), undefined);
    if (w.unwritten) {
        w.unwritten = false;
        for (u32 k = 0; k < i.n_dst; ++k)
            if (const i32 d = w.ops(i)[k]; d >= 0)
                w.initialised[static_cast<u32>(d)] &= ~(mask & w.undefined[static_cast<u32>(d)]);
    }
    after.pc += 1;
    return true;
}

// Whether others may notice when this instruction is executed.
bool is_step(const Inst& i) {
    switch (static_cast<Op>(i.op)) {
        case Op::ld:
        case Op::st: return space_of(i) != Space::param && space_of(i) != Space::local;
        case Op::bra:
        case Op::brx:
        case Op::nop:
        case Op::cvta:
        case Op::cvta_to:
        case Op::clock:
        case Op::elect:
        case Op::shfl:
        case Op::vote:
        case Op::activemask:
        case Op::redux:
        case Op::match_any:
        case Op::match_all:
        case Op::isspacep:
        case Op::mapa:
        case Op::getctarank: return false;
        default: return !computes(i);
    }
}

// pct schedule: before an instruction, whether another is to have its turn first.
bool interrupted(Machine& m, Warp& w) {
    Cluster& cluster = *w.cta->cluster;
    if (cluster.woken) return true;
    const Fragment& f = w.fragment();
    if (f.pc == f.join_pc || !is_step(w.program->insts[static_cast<u32>(f.pc)]) || !m.search.changes_now())
        return false;
    cluster.demoted = m.search.clusters > 1 && m.random() % 2;
    (cluster.demoted ? cluster.priority : w.priority) = Search::low(m.random);
    return true;
}

void choose_fragment(Warp& w) {
    Machine& m = machine_of(w);
    const u32 n = static_cast<u32>(w.fragments.size());
    if (n == 1 && !draws(m.schedule)) {  // as almost always; without a division
        w.current = 0;
        return;
    }
    const u32 start = draws(m.schedule) ? static_cast<u32>(pick(*w.cta->cluster, n)) : w.current + (n > 1);
    for (u32 k = 0; k < n; ++k) {
        const u32 index = (start + k) % n;
        if (w.fragments[index].wait == Wait::none) {
            w.current = index;
            return;
        }
    }
}

// Not inlined: its loop is to have the registers to itself. Several of it, so that looking costs nothing where nobody
// looks.
template <Looks L>
[[gnu::noinline]] void run_slice(Warp& w) {
    Machine& m = machine_of(w);
    const bool checks = m.checks;
    Cluster& cluster = *w.cta->cluster;
    u32 budget = draws(m.schedule) ? 1 + static_cast<u32>(pick(cluster, kSlice)) : kSlice;
    choose_fragment(w);
    w.spun = false;
    const u64 before = cluster.instructions;
    cluster.woken = false;
    while (budget-- > 0) {
        if constexpr (L != Looks::none)
            if (m.schedule == Schedule::pct && interrupted(m, w)) break;
        w.time += 1;
        m.stats.warp_instructions += 1;
        cluster.instructions += 1;
        if (!step<L>(m, w, checks)) break;
        if (w.spun) break;
    }
    w.unpolled = w.spun ? 0 : w.unpolled + cluster.instructions - before;
    if (w.spun) w.time += 32;
    cluster.failed_polls = w.spun ? cluster.failed_polls + 1 : 0;
    if (m.stats.warp_instructions > m.max_instructions)
        throw Fault("instruction-limit", format("the launch executed more than %llu warp instructions",
                                                (unsigned long long)m.max_instructions));
}

void check_exit(Cluster& cluster) {
    Machine& m = *cluster.machine;
    cluster.pending.each([&](const AsyncOp& op) {
        if (!op.outlives)
            m.report_strict(&cluster.ctas[op.cta]->warps[op.warp], "exit-with-work-in-flight",
                            "the CTA exits before this asynchronous operation is complete", op.pc);
    });
    // Stores are still performed, in order; what would only have changed the cluster's own memory is dropped.
    while (!cluster.pending.empty()) {
        const AsyncOp op = cluster.pending.drain();
        if (op.store) finish_async(cluster, op);
    }
    for (auto& cta : cluster.ctas) {
        const i32 owner = *std::max_element(cta->tmem.owner.begin(), cta->tmem.owner.end());
        if (owner)
            m.report(&cta->warps[0], "tmem-leak", "tensor memory allocated here is not deallocated when the CTA exits",
                     owner - 1);
    }
}

}  // namespace

Progress run_cluster(Cluster& cluster, u64 budget) {
    Machine& m = *cluster.machine;
    m.findings = &cluster.findings;
    Observer* const observer = Observer::of(m);
    if (observer) observer->enter(cluster);
    const u64 start = cluster.instructions;
    while (cluster.live_warps) {
        // Before anything is drawn: what a cluster does is not to depend on the turns that it gets.
        if (cluster.instructions - start > budget || std::exchange(cluster.demoted, false)) return Progress::yielded;
        Warp* w = next_warp(cluster);
        const bool polling = cluster.instructions - cluster.polled_since > kPolling ||
                             (cluster.pending.empty() && cluster.failed_polls > kFailedPolls * cluster.live_warps);
        const u32 place = due(cluster, w, w == nullptr || polling);
        if (place != AsyncQueue::kNone) {
            complete(cluster, place);
            continue;
        }
        if (!w || polling) {
            if (release_joins(cluster)) {
                cluster.note_progress();
                continue;
            }
            if (w) {
                cluster.polled_since = cluster.instructions;
                cluster.failed_polls = 0;
                return Progress::polling;
            }
            if (time_out_waits(cluster)) continue;
            if (retry_allocators(cluster)) return Progress::polling;
            return Progress::failed;
        }
        m.running = w;
        const u32 live_before = cluster.live_warps;
        if (observer)
            run_slice<Looks::observer>(*w);
        else if (m.watched || m.recorder || m.schedule == Schedule::pct)
            run_slice<Looks::marks>(*w);
        else
            run_slice<Looks::none>(*w);
        if (m.schedule == Schedule::pct) {
            if (!w->spun) look_again(cluster);
            w->yields = w->spun;
        }
        if (w->unpolled > kWorking || cluster.live_warps != live_before) cluster.note_progress();
    }
    check_exit(cluster);
    return Progress::done;
}

void suppose_released(Warp& w, u64 budget) {
    Machine& m = machine_of(w);
    Cluster& cluster = *w.cta->cluster;
    for (Fragment& f : w.fragments) {
        f.passed_barrier = f.passed_barrier || f.wait == Wait::barrier;
        f.wait_over = f.wait == Wait::mbarrier || f.wait == Wait::none;
        if (f.wait == Wait::mbarrier || f.wait == Wait::barrier) f.wait = Wait::none;
    }
    Findings* const told = m.findings;
    Findings unheard;
    m.findings = &unheard;
    const u64 start = cluster.instructions;
    try {
        do {
            if (!w.live || !ready(w)) break;
            run_slice<Looks::observer>(w);
        } while (!w.spun && cluster.instructions - start < budget);
    } catch (const Fault&) {  // what it does with data that never came
    }
    m.findings = told;
}

}  // namespace ptxm
