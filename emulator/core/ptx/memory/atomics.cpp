// atom, red, and loads and stores with memory-ordering semantics (PTX ISA 8.8-8.10, 9.7.13.5, 9.7.13.6).
#include <algorithm>
#include <array>
#include <limits>

#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/machine.hpp"
#include "numbers/double_nan.hpp"
#include "numbers/formats.hpp"
#include "numbers/single.hpp"
#include "order/history/linear_history.hpp"
#include "ptx/memory/generic_access.hpp"

namespace ptxm {
namespace {

using U128 = unsigned __int128;

// Shared memory dies with its cluster, and its messages with it.
SyncTable& table_of(Warp& w, const u8* location) {
    for (auto& cta : w.cta->cluster->ctas)
        if (location >= cta->shared.data() && location < cta->shared.data() + cta->shared.size())
            return w.cta->cluster->sync;
    return machine_of(w).sync;
}

u64 key_of(const u8* location) { return reinterpret_cast<std::uintptr_t>(location); }

void receive(Warp& w, const Message& m, bool acquire, bool own, u32 mask) {
    if (acquire) {
        w.clocks.acquire(m, w.acting(mask));
        return;
    }
    w.fences.collected.join(m);
    if (own) w.fences.collected_cta.join(m);
    w.fences.has_collected = true;
}

// What the location carries reaches this warp: at once for an acquire, at its next fence for a relaxed operation. Both
// scopes must include the other's thread: one of .cta sees what its own CTA released.
void observe(Warp& w, const u8* location, u32 mods, u32 mask) {
    const SyncTable::Slot* slot = table_of(w, location).find(key_of(location));
    if (!slot) return;
    const bool acquire = mods & kAcquire, cta_scope = mods & kCtaScope;
    const bool own = slot->releaser == w.cta->linear;
    if (slot->has_wide && (own || !cta_scope)) receive(w, slot->wide, acquire, own, mask);
    if (slot->has_narrow && slot->cta == w.cta->linear) receive(w, slot->narrow, acquire, true, mask);
    if (!cta_scope) join_shared(w.clocks.fences.observed, slot->fences);
}

// What a write hands on: of its release, or of an earlier fence. null where there is none.
struct Outgoing {
    const Message* within;  // to its own CTA
    const Message* beyond;  // to the others
};

// A copy for some lanes of the warp: what another lane did before its own fence comes before their write only where
// they have met it since.
const Message* restricted_to(const Warp& w, u32 lanes, const Message* fenced, Message& copy) {
    if (!fenced || !w.clocks.by_lane || lanes == kAllLanes) return fenced;
    copy = *fenced;
    w.clocks.restrict_to(copy, lanes);
    return &copy;
}

Outgoing outgoing(Warp& w, const Inst& i, u32 mask, std::array<Message, 2>& storage) {
    const u32 lanes = w.acting(mask);
    if (i.mods & kRelease) {
        storage[0] = w.clocks.release(lanes);
        return {&storage[0], i.mods & kCtaScope ? nullptr : &storage[0]};
    }
    const WarpFences& f = w.fences;
    if (!f.has_fenced) return {};
    const Message* beyond = nullptr;
    if (!(i.mods & kCtaScope) && f.fenced_beyond_cta.cluster != kNoCluster)
        beyond = restricted_to(w, lanes, &f.fenced_beyond_cta, storage[1]);
    // A fence of more than the CTA serves both; one of the CTA since then adds to what the CTA gets.
    if (beyond && !f.narrow_since) return {beyond, beyond};
    return {restricted_to(w, lanes, &f.fenced, storage[0]), beyond};
}

// The fence.sc that come before what these lanes write.
std::shared_ptr<const Message> fences_before(const Warp& w, u32 lanes) {
    const std::shared_ptr<const Message>& all = w.clocks.fences.before;
    if (!all || !w.clocks.by_lane || lanes == kAllLanes) return all;
    Message theirs = *all;
    w.clocks.restrict_to(theirs, lanes);
    return std::make_shared<const Message>(std::move(theirs));
}

void publish(Warp& w, const u8* location, const Outgoing& out, const std::shared_ptr<const Message>& fences, u32 mods,
             bool extend) {
    SyncTable& table = table_of(w, location);
    if (!extend) table.forget(key_of(location));
    if (!out.within && (!fences || (mods & kCtaScope))) return;
    SyncTable::Slot& slot = table.at(key_of(location));
    if (!(mods & kCtaScope)) join_shared(slot.fences, fences);
    // Released kernels take a flag that one thread sets to hand over what others have fenced before a barrier.
    if (fences && !(mods & kCtaScope) && machine_of(w).profile == Profile::lenient) {
        slot.releaser = slot.has_wide && slot.releaser != w.cta->linear ? SyncTable::Slot::kSeveral : w.cta->linear;
        slot.wide.join(*fences);
        slot.has_wide = true;
    }
    if (out.beyond) {
        slot.releaser = slot.has_wide && slot.releaser != w.cta->linear ? SyncTable::Slot::kSeveral : w.cta->linear;
        slot.wide.join(*out.beyond);
        slot.has_wide = true;
    }
    if (!out.within || out.within == out.beyond) return;
    if (!slot.has_narrow || slot.cta != w.cta->linear) slot.narrow = Message{};
    slot.narrow.join(*out.within);
    slot.cta = w.cta->linear;
    slot.has_narrow = true;
}

template <class F>
void each_location(u8* const (&pointers)[kLanes], u32 mask, F f) {
    const u8* last = nullptr;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1) || pointers[l] == last) continue;
        last = pointers[l];
        f(last);
    }
}

// Lanes that meet at a place come one after the other: what one of them has released, those behind it acquire.
void order_lanes(Warp& w, const Inst& i, u8* const (&pointers)[kLanes], u32 mask) {
    const bool releases = i.mods & kRelease || w.fences.has_fenced;
    if (!w.clocks.by_lane || !releases) return;
    const u32 released = w.clocks.lanes_released;
    std::vector<WarpClocks::LanesMet>& waiting = w.fences.in_turn;
    constexpr std::size_t kKept = 64;
    for (u32 left = mask; left;) {
        u32 lanes = 0;
        for (u32 l = std::countr_zero(left); l < kLanes; ++l)
            if (left >> l & 1 && pointers[l] == pointers[std::countr_zero(left)]) lanes |= 1u << l;
        left &= ~lanes;
        if (std::has_single_bit(lanes)) continue;
        if (i.mods & kAcquire) {
            w.clocks.order_in_turn(lanes, released);
        } else if (waiting.empty() || waiting.back().lanes != lanes || waiting.back().clock != released) {
            if (waiting.size() == kKept) waiting.erase(waiting.begin());
            waiting.push_back({released, lanes, true});
        }
    }
}

Strength strength_of(const Inst& i) { return i.mods & kCtaScope ? Strength::cta : Strength::wide; }

// The same value again at the same place: the warp polls, and another should run.
void note_poll(Warp& w, const u8* location, u64 address, u32 bytes) {
    u64 value = 0;
    std::memcpy(&value, location, std::min(bytes, 8u));
    // An offset in local memory is not one in shared memory.
    if (location >= w.local.data() && location < w.local.data() + w.local.size()) address |= kLocalWindow;
    WarpFences& f = w.fences;
    for (WarpFences::Poll& p : f.polls) {
        if (p.pc != w.pc()) continue;
        w.spun = p.value == value;
        if (!w.spun) w.cta->cluster->note_progress();
        p.value = value;
        p.address = address;
        return;
    }
    f.polls[f.next_poll++ % f.polls.size()] = {w.pc(), value, address};
}

Flow ld_sync(Warp& w, const Inst& i, u32 mask) {
    const u32 bytes = element_bytes(static_cast<Ty>(i.type)) * i.n_dst;
    Addresses a = lane_addresses(w, w.ops(i)[i.n_dst], i.width_src, i.immediate);
    u8* pointers[kLanes];
    resolve_lanes(w, space_of(i), a, mask, bytes, false, pointers, strength_of(i));
    load_values(w, i, mask, pointers);
    follow_load(w, i, pointers, mask);
    each_location(pointers, mask, [&](const u8* at) { observe(w, at, i.mods, mask); });
    const auto first = static_cast<u32>(std::countr_zero(mask));
    note_poll(w, pointers[first], a.at[first], bytes);
    return Flow::next;
}

Flow st_sync(Warp& w, const Inst& i, u32 mask) {
    Addresses a = lane_addresses(w, w.ops(i)[0], i.width_dst, i.immediate);
    u8* pointers[kLanes];
    resolve_lanes(w, space_of(i), a, mask, element_bytes(static_cast<Ty>(i.type)) * (i.n_src - 1u), true, pointers,
                  strength_of(i));
    store_values(w, i, mask, pointers);
    follow_store(w, i, pointers, mask);
    std::array<Message, 2> storage;
    const std::shared_ptr<const Message> fences = fences_before(w, w.acting(mask));
    const Outgoing out = outgoing(w, i, mask, storage);
    each_location(pointers, mask, [&](const u8* at) { publish(w, at, out, fences, i.mods, false); });
    return Flow::next;
}

template <class T>
T combine_integers(Atom op, T a, T b) {
    using U = std::make_unsigned_t<T>;
    switch (op) {
        case Atom::add: return static_cast<T>(U(a) + U(b));
        case Atom::and_: return a & b;
        case Atom::or_: return a | b;
        case Atom::xor_: return a ^ b;
        case Atom::min: return std::min(a, b);
        case Atom::max: return std::max(a, b);
        case Atom::inc: return a >= b ? T{0} : static_cast<T>(a + 1);
        case Atom::dec: return a == 0 || a > b ? b : static_cast<T>(a - 1);
        default: return b;
    }
}

template <const FloatFormat& kFormat>
u16 combine_narrow(Atom op, u16 a, u16 b) {
    const auto widen = [](u16 x) { return &kFormat == &kF16 ? half_to_float(x) : bf16_to_float(x); };
    const float x = widen(a), y = widen(b);
    float r = x + y;
    if (op != Atom::add) {
        if (x != x || y != y)
            r = x != x ? y : x;
        else if (x == y)
            r = std::signbit(x) == (op == Atom::min) ? x : y;
        else
            r = (op == Atom::min) == (x < y) ? x : y;
    }
    return &kFormat == &kF16 ? float_to_half(r) : float_to_bf16(r);
}

template <const FloatFormat& kFormat>
u32 combine_pair(Atom op, u32 a, u32 b) {
    const u32 low = combine_narrow<kFormat>(op, static_cast<u16>(a), static_cast<u16>(b));
    return static_cast<u32>(combine_narrow<kFormat>(op, static_cast<u16>(a >> 16), static_cast<u16>(b >> 16))) << 16 |
           low;
}

// On global memory an f32 addition flushes denormals, on shared memory it does not (PTX ISA, atom).
u32 add_f32(u32 a, u32 b, bool flushes) {
    const float x = std::bit_cast<float>(a), y = std::bit_cast<float>(b);
    return std::bit_cast<u32>(one_nan(flushes ? flush(flush(x) + flush(y)) : x + y));
}

u64 combine_values(Ty ty, Atom op, u64 a, u64 b, bool flushes) {
    if (op == Atom::exch || op == Atom::cas) return b;
    switch (ty) {
        case Ty::f16: return combine_narrow<kF16>(op, static_cast<u16>(a), static_cast<u16>(b));
        case Ty::bf16: return combine_narrow<kBf16>(op, static_cast<u16>(a), static_cast<u16>(b));
        case Ty::f16x2: return combine_pair<kF16>(op, static_cast<u32>(a), static_cast<u32>(b));
        case Ty::bf16x2: return combine_pair<kBf16>(op, static_cast<u32>(a), static_cast<u32>(b));
        case Ty::f32: return add_f32(static_cast<u32>(a), static_cast<u32>(b), flushes);
        case Ty::f64: return std::bit_cast<u64>(add_in_memory(std::bit_cast<double>(a), std::bit_cast<double>(b)));
        case Ty::s32: return static_cast<u32>(combine_integers(op, static_cast<i32>(a), static_cast<i32>(b)));
        case Ty::u32_:
        case Ty::b32: return combine_integers(op, static_cast<u32>(a), static_cast<u32>(b));
        case Ty::s64: return static_cast<u64>(combine_integers(op, static_cast<i64>(a), static_cast<i64>(b)));
        default: return combine_integers(op, a, b);
    }
}

// One element of one lane, in place; returns what was there. o: the sources after the address, b and, for cas, c.
u64 update(Warp& w, const Inst& i, const i32* o, u32 lane, u8* at, u32 bytes, bool flushes) {
    const Atom op = static_cast<Atom>(i.mods >> kAtomShift & 0xF);
    const auto value_of = [&](i32 unit) {
        u64 v = 0;
        std::memcpy(&v, w.reg<u8>(unit) + lane * bytes, bytes);
        return v;
    };
    u64 old = 0;
    std::memcpy(&old, at, bytes);
    const u64 b = value_of(o[0]);
    if (op == Atom::cas) {
        const u64 c = value_of(o[1]);
        if (old == b) std::memcpy(at, &c, bytes);
        return old;
    }
    const u64 result = combine_values(static_cast<Ty>(i.type), op, old, b, flushes);
    std::memcpy(at, &result, bytes);
    return old;
}

void update_wide(Warp& w, const Inst& i, const i32* o, u32 lane, u8* at) {  // .b128: cas and exch
    U128 old;
    std::memcpy(&old, at, sizeof old);
    const bool cas = static_cast<Atom>(i.mods >> kAtomShift & 0xF) == Atom::cas;
    const U128 b = w.reg<U128>(o[0])[lane];
    if (!cas || old == b) std::memcpy(at, cas ? &w.reg<U128>(o[1])[lane] : &b, sizeof b);
    if (i.n_dst && w.ops(i)[0] >= 0) w.reg<U128>(w.ops(i)[0])[lane] = old;
}

void update_lane(Warp& w, const Inst& i, u32 lane, u8* at, u32 bytes, u32 count, bool flushes) {
    const i32* o = w.ops(i);
    for (u32 k = 0; k < count; ++k) {
        const u64 old = update(w, i, o + i.n_dst + 1 + k, lane, at + k * bytes, bytes, flushes);
        if (i.n_dst && o[k] >= 0) std::memcpy(w.reg<u8>(o[k]) + lane * bytes, &old, bytes);
    }
}

bool looks(const Warp& w, const Inst& i) { return i.n_dst && !(i.mods & kUnread) && w.ops(i)[0] >= 0; }

// What one lane does, for the tail of a launch that another may overlap.
void note_in_tail(Warp& w, const Inst& i, u32 lane, u64 address, u32 bytes, u32 count) {
    Overlap& overlap = machine_of(w).overlap;
    const Atom op = static_cast<Atom>(i.mods >> kAtomShift & 0xF);
    if (looks(w, i) || op == Atom::cas || bytes > sizeof(u64)) return overlap.note(address, bytes * count, {});
    for (u32 k = 0; k < count; ++k) {
        u64 value = 0;
        std::memcpy(&value, w.reg<u8>(w.ops(i)[i.n_dst + 1 + k]) + lane * bytes, bytes);
        overlap.note(address + k * bytes, bytes, [op, type = static_cast<Ty>(i.type), value, bytes](u8* at) {
            u64 old = 0;
            std::memcpy(&old, at, bytes);
            const u64 result = combine_values(type, op, old, value, true);
            std::memcpy(at, &result, bytes);
        });
    }
}

// The launch before this one, undone in part, has looked at what atomics left where these lanes' come: they come after.
void redo_looked_at(Machine& m, const Addresses& a, u32 mask, u32 bytes) {
    for (u32 l = 0; l < kLanes; ++l)
        if (mask >> l & 1 && m.overlap.looked_at(a.at[l], bytes)) return m.overlap.redo(m.global.memory());
}

// Atomics of two launches never race, but what one of them makes of the count is another thing where the other adds to
// it: of what counts up and is looked at.
void check_counter(Warp& w, const Inst& i, u64 address, u32 bytes) {
    Machine& m = machine_of(w);
    const Atom op = static_cast<Atom>(i.mods >> kAtomShift & 0xF);
    const bool counts = op == Atom::add || op == Atom::inc || op == Atom::dec;
    Allocation* const a = counts && looks(w, i) ? m.global.find(address, bytes) : nullptr;
    LinearShadow* const shadow = a ? m.global.existing_shadow(*a) : nullptr;
    if (!shadow) return;
    u32 other = 0;
    i32 pc = -1;
    shadow->each_past(address - a->base, address - a->base + bytes, [&](const Past& past) {
        const u32 launch = past.write.clock && past.write.strong ? m.launch_of(past.write.cluster) : 0;
        if (!launch || !m.beside(launch)) return;
        other = launch;
        pc = static_cast<i32>(past.write.pc);
    });
    if (!other || m.findings->seen("stream-counter", w.pc(), pc)) return;
    m.report_beside(
        w, "stream-counter",
        format("warp %u counts in '%s' at byte %llu and may look at the count, to which %s adds as well: no event "
               "and no synchronisation orders the two",
               w.index, a->name.c_str(), (unsigned long long)(address - a->base), m.in_its_stream(other).c_str()),
        {w.pc(), pc, other}, Severity::warning);
}

// A count that CTAs draw from, in a launch of which only some run: what the CTA would find if all drew in turns, after
// each its own number. Each turn has another order, or CTAs would get the same part of everything that recurs.
void draw_in_turn(Warp& w, const Inst& i, u32 lane, u32 bytes) {
    constexpr double kApart = 0.618;  // of the CTAs: between one turn's first and the next one's
    const auto& grid = machine_of(w).launch->grid;
    const u64 ctas = u64{grid[0]} * grid[1] * grid[2], turn = w.cta->draws++;
    const u64 found = turn * ctas + (w.cta->linear + (turn + 1) * static_cast<u64>(kApart * double(ctas))) % ctas;
    if (i.n_dst && w.ops(i)[0] >= 0) std::memcpy(w.reg<u8>(w.ops(i)[0]) + lane * bytes, &found, bytes);
}

// atom and red. Sources: the address, then the values (one an element of a vector; for cas the comparand and the
// value).
Flow atom(Warp& w, const Inst& i, u32 mask) {
    const u32 bytes = element_bytes(static_cast<Ty>(i.type));
    const bool cas = static_cast<Atom>(i.mods >> kAtomShift & 0xF) == Atom::cas;
    const u32 count = cas ? 1 : i.n_src - 1u;
    Addresses a = lane_addresses(w, w.ops(i)[i.n_dst], i.width_src, i.immediate), again = a;
    u8* pointers[kLanes];
    if (machine_of(w).checks && !machine_of(w).launch->beside.empty()) {
        const u64 first = a.at[std::countr_zero(mask)];
        check_counter(w, i, first, bytes);
    }
    resolve_lanes(w, space_of(i), a, mask, bytes * count, false, pointers, strength_of(i));
    resolve_lanes(w, space_of(i), again, mask, bytes * count, true, pointers, strength_of(i));
    const bool flushes = &table_of(w, pointers[std::countr_zero(mask)]) == &machine_of(w).sync;
    note_poll(w, pointers[std::countr_zero(mask)], a.at[std::countr_zero(mask)], bytes);
    Machine& m = machine_of(w);
    const u64 counter = m.only_recorded ? m.counter : 0;  // 0: CTAs draw from none
    if (flushes && m.overlap.undone()) redo_looked_at(m, a, mask, bytes * count);
    const bool in_tail = flushes && m.overlap.in_tail();
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        if (in_tail) note_in_tail(w, i, l, a.at[l], bytes, count);
        if (counter && a.at[l] == counter)
            draw_in_turn(w, i, l, bytes);
        else if (bytes == 16)
            update_wide(w, i, w.ops(i) + i.n_dst + 1, l, pointers[l]);
        else
            update_lane(w, i, l, pointers[l], bytes, count, flushes);
    }
    each_location(pointers, mask, [&](const u8* at) { observe(w, at, i.mods, mask); });
    std::array<Message, 2> storage;
    const std::shared_ptr<const Message> fences = fences_before(w, w.acting(mask));
    const Outgoing out = outgoing(w, i, mask, storage);
    each_location(pointers, mask, [&](const u8* at) { publish(w, at, out, fences, i.mods, true); });
    order_lanes(w, i, pointers, mask);
    return Flow::next;
}

// fence.acq_rel, fence.sc, membar: completes the acquire of relaxed reads before it, and lends its release to relaxed
// writes after it. Restricted to shared memory, it leaves the rest to an unrestricted one.
Flow fence(Warp& w, const Inst& i, u32 mask) {
    const u32 lanes = w.acting(mask);
    const bool restricted = i.mods & kFenceShared;
    if ((i.mods & kAcquire) && w.fences.has_collected) {
        if (restricted) {
            w.clocks.acquire_shared(w.fences.collected);
        } else if (i.mods & kCtaScope) {
            w.clocks.acquire(w.fences.collected_cta, lanes);
            w.fences.collected_cta.clear();
        } else {
            w.clocks.acquire(w.fences.collected, lanes);
            w.fences.collected.clear();
            w.fences.collected_cta.clear();
            w.fences.has_collected = false;
        }
    }
    if (i.mods & kAcquire) {
        for (const WarpClocks::LanesMet& met : w.fences.in_turn) w.clocks.order_in_turn(met.lanes, met.clock);
        w.fences.in_turn.clear();
    }
    const bool sequential = i.mods & kSequential || machine_of(w).profile == Profile::lenient;
    if (sequential && !restricted && !(i.mods & kCtaScope)) w.clocks.fence_sequential();
    if (i.mods & kRelease) {
        Message released = w.clocks.release(lanes);
        // Another part of the warp may have fenced for itself just before.
        if (w.clocks.by_lane && lanes != kAllLanes && w.fences.has_fenced) released.join(w.fences.fenced);
        if (restricted) {
            released.restrict_to_shared();
            released.join(w.fences.fenced);
        }
        w.fences.narrow_since = i.mods & kCtaScope;
        if (!(i.mods & kCtaScope)) w.fences.fenced_beyond_cta = released;
        w.fences.fenced = std::move(released);
        w.fences.has_fenced = true;
    }
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_sync(X)       \
    X(ld_sync, by_space, sync) \
    X(st_sync, by_space, sync) \
    X(atom, by_space, sync)    \
    X(fence_acq_rel, barrier, sync)
// clang-format on

Handler bind_sync(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::ld_sync: return ld_sync;
        case Op::st_sync: return st_sync;
        case Op::atom: return atom;
        case Op::fence_acq_rel: return fence;
        default: return nullptr;
    }
}

}  // namespace ptxm
