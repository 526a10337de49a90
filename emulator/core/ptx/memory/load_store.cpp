// ld, st: the generic proxy.
#include <algorithm>
#include <functional>

#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/machine.hpp"
#include "machine/observer.hpp"
#include "memory/banks.hpp"
#include "order/conflicts/conflicts.hpp"
#include "order/conflicts/lane_races.hpp"
#include "order/history/linear_history.hpp"
#include "ptx/memory/generic_access.hpp"

namespace ptxm {

Addresses lane_addresses(Warp& w, i32 unit, u32 width, i64 offset) {
    Addresses a;
    if (width == 64) {
        const u64* base = w.reg<u64>(unit);
        for (u32 l = 0; l < kLanes; ++l) a.at[l] = base[l] + static_cast<u64>(offset);
    } else {
        const u32* base = w.reg<u32>(unit);
        for (u32 l = 0; l < kLanes; ++l) a.at[l] = base[l] + static_cast<u32>(offset);
    }
    return a;
}

namespace {

// Lanes that take no part get the address of one that does: the loops over all of them vectorise.
void fill_inactive(Addresses& a, u32 mask) {
    if (mask == kFullMask) return;
    const u64 first = a.at[std::countr_zero(mask)];
    for (u32 l = 0; l < kLanes; ++l) a.at[l] = mask >> l & 1 ? a.at[l] : first;
}

// The lowest and the highest address.
struct Extent {
    u64 low, high;
};

Extent extent_of(const Addresses& a) {
    Extent e{~0ull, 0};
    for (u32 l = 0; l < kLanes; ++l) {
        e.low = std::min(e.low, a.at[l]);
        e.high = std::max(e.high, a.at[l]);
    }
    return e;
}

void check_alignment(const Addresses& a, u32 mask, u32 size, const char* what) {
    u64 low = 0;
    for (u32 l = 0; l < kLanes; ++l) low |= a.at[l];
    if (low & (size - 1)) {
        for (u32 l = 0; l < kLanes; ++l)
            if ((mask >> l & 1) && (a.at[l] & (size - 1)))
                throw Fault("misaligned", format("%s of %u bytes at 0x%llx (lane %u) is not aligned to its size", what,
                                                 size, (unsigned long long)a.at[l], l));
    }
}

// Whether each lane's bytes follow those of the lane before, or all lanes have the same: then they are one range.
enum class Pattern : u8 { adjacent, same, other };

Pattern pattern_of(const Addresses& a, u32 size) {
    u64 adjacent = 0, same = 0;
    for (u32 l = 1; l < kLanes; ++l) {
        adjacent += a.at[l] - a.at[l - 1] == size;
        same += a.at[l] == a.at[l - 1];
    }
    if (adjacent == kLanes - 1) return Pattern::adjacent;
    if (same == kLanes - 1) return Pattern::same;
    return Pattern::other;
}

// What the lanes of an instruction access. Adjacent or equal ranges are one: a warp-wide vector access is one.
class LaneRanges {
public:
    LaneRanges(const Addresses& a, u32 mask, u32 size, Pattern pattern) {
        if (mask == kFullMask && (pattern == Pattern::same || pattern == Pattern::adjacent)) {
            add(a.at[0], pattern == Pattern::same ? size : kLanes * size);
            return;
        }
        for (u32 l = 0; l < kLanes; ++l) {
            if (!(mask >> l & 1)) continue;
            const u64 at = a.at[l];
            Range* last = count_ ? &ranges_[count_ - 1] : nullptr;
            if (last && at >= last->start && at + size <= last->start + last->bytes) continue;
            if (last && at == last->start + last->bytes)
                last->bytes += size;
            else
                add(at, size);
        }
    }
    // Calls f(owner, ranges) for every owner; owner_of(range) is that of the whole range.
    template <class OwnerOf, class F>
    void each_owner(OwnerOf owner_of, F f) {
        for (u32 from = 0; from < count_;) {
            auto& owner = owner_of(ranges_[from]);
            u32 to = from + 1;
            while (to < count_ && &owner_of(ranges_[to]) == &owner) ++to;
            f(owner, std::span<Range>(ranges_ + from, to - from));
            from = to;
        }
    }

private:
    void add(u64 at, u32 bytes) { ranges_[count_++] = {at, bytes}; }

    Range ranges_[kLanes];
    u32 count_ = 0;
};

u8* local_bytes_at(Warp& w, u32 lane, u64 at, u32 size, bool write, const char* what) {
    if (size > w.program->local_bytes || at > w.program->local_bytes - size)
        throw Fault("local-out-of-bounds", format("%s of %u bytes at local byte %llu of %u", what, size,
                                                  (unsigned long long)at, w.program->local_bytes));
    const u64 place = u64{lane} * w.program->local_bytes + at;
    if (write && !w.local_written.empty()) std::fill_n(w.local_written.data() + place, size, u8{1});
    return w.local.data() + place;
}

// True where all lanes access their own CTA's memory.
bool point_shared(Warp& w, Space space, const Addresses& a, const Extent& e, u32 mask, u32 size, const char* what,
                  u8* (&pointers)[kLanes]) {
    const u64 own = u64{w.cta->rank} << kSharedRankShift;
    if (e.low >= own + kSharedStart && e.high + size <= own + w.cta->shared.size()) {
        u8* base = w.cta->shared.data() - own;
        for (u32 l = 0; l < kLanes; ++l) pointers[l] = base + a.at[l];
        return true;
    }
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const SharedRef ref = resolve_shared(w, static_cast<u32>(a.at[l]), size, what);
        if (space == Space::shared && ref.cta != w.cta)
            throw Fault("shared-out-of-bounds", format("%s through .shared::cta at 0x%llx, which lies in another CTA",
                                                       what, (unsigned long long)a.at[l]));
        pointers[l] = ref.cta->shared.data() + ref.offset;
    }
    return false;
}

// One look-up where all lanes lie in one allocation, which is returned; one a lane otherwise.
Allocation* point_global(Warp& w, const Addresses& a, const Extent& e, u32 mask, u32 size, const char* what,
                         u8* (&pointers)[kLanes]) {
    if (Allocation* all = machine_of(w).global.find(e.low, e.high - e.low + size)) {
        for (u32 l = 0; l < kLanes; ++l) pointers[l] = all->data.get() + (a.at[l] - all->base);
        return all;
    }
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const Allocation& one = resolve_global(w, a.at[l], size, what);
        pointers[l] = one.data.get() + (a.at[l] - one.base);
    }
    return nullptr;
}

// An element of each lane, in memory and in a register.
struct Lanes {
    u8* const (&pointers)[kLanes];
    u32 offset;
    const u8* values;
    u32 stride;

    template <class T>
    u32 alike(u32 mask) const {
        u32 same = 0;
        for (u32 l = 0; l < kLanes; ++l) {
            if (!(mask >> l & 1)) continue;
            T there, here;
            std::memcpy(&there, pointers[l] + offset, sizeof(T));
            std::memcpy(&here, values + l * stride, sizeof(T));
            same |= static_cast<u32>(there == here) << l;
        }
        return same;
    }
};

// The lanes whose store changes nothing. Released compilers let several warps write the same value to the same place.
u32 repeating_lanes(Warp& w, const Inst& i, u32 mask, u8* const (&pointers)[kLanes]) {
    const i32* o = w.ops(i);
    const u32 bytes = element_bytes(static_cast<Ty>(i.type)), stride = i.width_src / 8;
    for (u32 k = 0; mask && k + 1u < i.n_src; ++k) {
        const Lanes lanes{pointers, k * bytes, w.reg<u8>(o[1 + k]), stride};
        switch (bytes) {
            case 1: mask &= lanes.alike<u8>(mask); break;
            case 2: mask &= lanes.alike<u16>(mask); break;
            case 4: mask &= lanes.alike<u32>(mask); break;
            case 8: mask &= lanes.alike<u64>(mask); break;
            default: mask &= lanes.alike<unsigned __int128>(mask);
        }
    }
    return mask;
}

// Of these lanes those that come to what a launch before this one has written. It may be undone (memory/overlap.hpp):
// what is there then is not what it has written.
u32 lanes_behind_launches(Warp& w, const Addresses& a, u32 mask, u32 size) {
    Machine& m = machine_of(w);
    u32 behind = 0;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        Allocation* const at = m.global.find(a.at[l], size);
        LinearShadow* const shadow = at ? m.global.existing_shadow(*at) : nullptr;
        if (!shadow) continue;
        shadow->each_past(a.at[l] - at->base, a.at[l] - at->base + size, [&](const Past& past) {
            if (past.write.clock && m.launch_of(past.write.cluster)) behind |= u32{1} << l;
        });
    }
    return behind;
}

// The lanes of one load or store in one state space.
struct WarpAccess {
    Warp& w;
    const Addresses& a;
    u32 mask, size;
    const Inst* store;
    const char* what;

    static constexpr u32 kPiece = 16;
    // Whether lanes are best looked at one by one, not as ranges.
    bool in_pieces(Pattern pattern) const { return size <= kPiece && pattern == Pattern::other; }
    // Whether some may store what is there already, which the lenient profile lets pass.
    bool may_repeat() const { return store && machine_of(w).profile == Profile::lenient; }
    // Calls touch(ranges) for the lanes, and once more for those whose store changes nothing.
    template <class Touch>
    void each_kind(Pattern pattern, Accessor& who, u8* const (&pointers)[kLanes], Touch touch) const {
        u32 repeating = may_repeat() ? repeating_lanes(w, *store, mask, pointers) : 0;
        if (repeating && machine_of(w).overlap.undone()) repeating &= ~lanes_behind_launches(w, a, repeating, size);
        touch(LaneRanges(a, mask & ~repeating, size, pattern));
        if (!repeating) return;
        who.repeats = true;
        touch(LaneRanges(a, repeating, size, pattern));
    }
};

// "element 64 of 'tile', which has 0..63: " where an address was computed from one array, by elements of the access.
std::string element_named(const Arrays& arrays, u64 at, u32 size) {
    if (arrays.list.size() != 1) return {};
    const auto [begin, end] = arrays.list[0];
    const i64 from = static_cast<i64>(at) - begin, bytes = i64{end} - begin;
    if (bytes < size || bytes % size || from % size || end > kSharedOffsetMask) return {};
    return format("element %lld of %s, which has 0..%lld: ", (long long)(from / size),
                  arrays.names.substr(0, arrays.names.find(',')).c_str(), (long long)(bytes / size - 1));
}

// An address that was computed from the name of an array lies in that array.
[[gnu::noinline]] void check_arrays(const WarpAccess& x, const Arrays& arrays) {
    Warp& w = x.w;
    Machine& m = machine_of(w);
    const u64 own = u64{w.cta->rank} << kSharedRankShift;
    for (u32 l = 0; l < kLanes; ++l) {
        const u64 at = x.a.at[l] - own;
        if (!(x.mask >> l & 1) || at > kSharedOffsetMask || arrays.hold(at, at + x.size)) continue;
        std::string message = format(
            "a %s of %u bytes at %sbyte 0x%llx of shared memory (lane %u), outside of what its address was "
            "computed from: %s",
            x.what, x.size, element_named(arrays, at, x.size).c_str(), (unsigned long long)at, l, arrays.names.c_str());
        if (m.profile == Profile::lenient && static_cast<Op>(m.program->insts[static_cast<u32>(w.pc())].op) == Op::ld)
            return doubt(w, {"array-out-of-bounds", std::move(message), w.pc(), -1});
        return m.report(&w, "array-out-of-bounds", std::move(message), w.pc());
    }
}

void resolve_shared_lanes(const WarpAccess& x, Space space, Accessor& who, u8* (&pointers)[kLanes]) {
    Warp& w = x.w;
    const Extent e = extent_of(x.a);
    const bool own = point_shared(w, space, x.a, e, x.mask, x.size, x.what, pointers);
    if (!machine_of(w).checks) return;
    if (const u8 number = w.program->insts[static_cast<u32>(w.pc())].arrays) {
        const Arrays& arrays = w.program->arrays[number - 1u];
        const u64 start = u64{w.cta->rank} << kSharedRankShift;
        if (!arrays.hold(e.low - start, e.high + x.size - start)) check_arrays(x, arrays);
    }
    const Pattern pattern = pattern_of(x.a, x.size);
    if (own && x.in_pieces(pattern) && touch_shared_lanes(w, {x.a.at, x.size, e.low, e.high + x.size}, who)) return;
    x.each_kind(pattern, who, pointers, [&](LaneRanges&& lanes) {
        lanes.each_owner([&](const Range& r) -> Cta& { return *w.cta->cluster->ctas[r.start >> kSharedRankShift]; },
                         [&](Cta& cta, std::span<Range> ranges) {
                             for (Range& r : ranges) r.start &= kSharedOffsetMask;
                             touch_shared(cta, w, ranges, who, false);
                         });
    });
}

// The lanes' 16 bytes each, in the interleaving of the launch.
[[gnu::noinline]] void note_order(Warp& w, Space space, const Addresses& a, u32 mask, bool write) {
    constexpr u64 kShared = u64{1} << 63;
    const bool shared = space == Space::shared || space == Space::shared_cluster;
    if (!shared && space != Space::global) return;
    u64 last = ~u64{0};
    for (u32 l = 0; l < kLanes; ++l) {
        const u64 place = shared ? kShared | u64{w.cta->cluster->number} << 40 | a.at[l] / 16 : a.at[l] / 16;
        if (!(mask >> l & 1) || place == last) continue;
        machine_of(w).interleaving->access(place, name_in_order(w, w.pc()), write);
        last = place;
    }
}

void resolve_global_lanes(const WarpAccess& x, Accessor& who, u8* (&pointers)[kLanes]) {
    Warp& w = x.w;
    const Machine& m = machine_of(w);
    const Extent e = extent_of(x.a);
    Allocation* const all = point_global(w, x.a, e, x.mask, x.size, x.what, pointers);
    if (!m.checks && !m.global.logs()) return;
    // Where the access is known: its lanes are compared once it is.
    constexpr u64 kNumbered = u64{1} << 32;
    const bool compared = m.profile == Profile::strict && all && all->size < kNumbered;
    const auto compare = [&] {
        if (compared) check_lanes(w, x.a.at, x.mask, x.size, who, all);
    };
    const Pattern pattern = pattern_of(x.a, x.size);
    if (all && m.checks && !m.global.logs() && x.in_pieces(pattern) &&
        touch_global_lanes(*all, w, {x.a.at, x.size, e.low, e.high + x.size}, who))
        return compare();
    if (all && pattern != Pattern::other && x.mask == kFullMask && !x.may_repeat()) {
        const Range range{e.low, e.high - e.low + x.size};
        touch_global(*all, w, {&range, 1}, who, false);
        return compare();
    }
    x.each_kind(pattern, who, pointers, [&](LaneRanges&& lanes) {
        Allocation* last = all;  // of the range before, mostly this one's too
        lanes.each_owner(
            [&](const Range& r) -> Allocation& {
                if (!last || !last->holds(r.start, r.bytes)) last = &resolve_global(w, r.start, r.bytes, x.what);
                return *last;
            },
            [&](Allocation& allocation, std::span<Range> ranges) { touch_global(allocation, w, ranges, who, false); });
    });
    compare();
}

}  // namespace

void resolve_lanes(Warp& w, Space space, Addresses& a, u32 mask, u32 size, bool write, u8* (&pointers)[kLanes],
                   Strength strength, const Inst* store, bool non_coherent) {
    const char* what = write ? "store" : "load";
    if (space != Space::param && space != Space::local) w.clocks.note_access(mask);
    Accessor who{w.clocks.self, w.clocks.epoch(), static_cast<u32>(w.pc()), write, strength != Strength::weak};
    who.narrow = strength == Strength::cta;
    who.non_coherent = non_coherent;
    who.lanes = mask;
    if (space == Space::generic) {
        const u32 first = static_cast<u32>(std::countr_zero(mask));
        space = window_of(a.at[first]);
        u32 same = 0;
        for (u32 l = 0; l < kLanes; ++l)
            if ((mask >> l & 1) && window_of(a.at[l]) == space) same |= 1u << l;
        if (same != mask) {
            Addresses others = a;
            resolve_lanes(w, Space::generic, others, mask & ~same, size, write, pointers, strength, store,
                          non_coherent);
            mask = same;
        }
        if (space != Space::global)
            for (u32 l = 0; l < kLanes; ++l) a.at[l] &= ~kWindowMask;
    }
    if (space == Space::shared || space == Space::shared_cluster)
        for (u32 l = 0; l < kLanes; ++l) a.at[l] = static_cast<u32>(a.at[l]);  // of a wider register the space's width
    fill_inactive(a, mask);
    check_alignment(a, mask, size, what);
    if (Observer* const o = Observer::of(machine_of(w)); o && space != Space::param && space != Space::local)
        o->accesses(w, space == Space::shared || space == Space::shared_cluster, a.at, mask, size, write);
    if (machine_of(w).interleaving) note_order(w, space, a, mask, write);
    switch (space) {
        case Space::shared:
        case Space::shared_cluster:
            machine_of(w).stats.bank_conflicts += bank_conflicts(a.at, mask, size);
            resolve_shared_lanes({w, a, mask, size, store, what}, space, who, pointers);
            check_lanes(w, a.at, mask, size, who);
            break;
        case Space::global:
        case Space::constant: resolve_global_lanes({w, a, mask, size, store, what}, who, pointers); break;
        case Space::param:
            for (u32 l = 0; write && l < kLanes; ++l)
                if ((mask >> l & 1) && a.at[l] < kCallParams) throw Fault("param-store", "store to a kernel parameter");
            for (u32 l = 0; l < kLanes; ++l)
                if (mask >> l & 1)
                    pointers[l] = a.at[l] >= kCallParams
                                      ? local_bytes_at(w, l, a.at[l] - kCallParams, size, write, what)
                                      : resolve_param(w, a.at[l], size);
            break;
        case Space::local:
            for (u32 l = 0; l < kLanes; ++l)
                if (mask >> l & 1) pointers[l] = local_bytes_at(w, l, a.at[l], size, write, what);
            break;
        default: throw Fault("internal", "unresolved address space");
    }
}

namespace {

// Of an element one byte is enough: structs have gaps, which compilers copy.
template <class Written>
bool any_byte(u64 at, u32 bytes, Written written) {
    for (u32 k = 0; k < bytes; ++k)
        if (written(at + k)) return true;
    return false;
}

// Whether the value that these bytes have is one to rely on. Of an address in global memory, or one of shared memory
// without the window of generic addresses.
bool reliable(Warp& w, const Inst& i, u64 at, u32 bytes) {
    Machine& m = machine_of(w);
    Accessor who{w.clocks.self, w.clocks.epoch(), static_cast<u32>(w.pc()), false};
    const bool raced = w.doubt.rule && w.doubt.other >= 0;
    if (at >= kGlobalBase && window_of(at) == Space::global) {
        Allocation& a = resolve_global(w, at, bytes, "load");
        return any_byte(at, bytes, [&](u64 byte) { return written(m, a, byte, 1); }) &&
               !(raced && races(w, m.global.shadow(a), at - a.base, bytes, of_cluster(w, who)));
    }
    const u32 place = static_cast<u32>(at & ~kWindowMask);
    const u64 offset = place & kSharedOffsetMask;
    Cta& cta = *w.cta->cluster->ctas[place >> kSharedRankShift];
    if (i.arrays && !w.program->arrays[i.arrays - 1u].hold(offset, offset + bytes)) return false;
    return any_byte(offset, bytes, [&](u64 byte) { return cta.shared_shadow->written(byte, 1); }) &&
           !(raced && races(w, *cta.shared_shadow, offset, bytes, who));
}

// The lanes to whose registers this load brings what nothing has written lack a value: lenient profile.
[[gnu::noinline]] void leave_undefined(Warp& w, const Inst& i, const Addresses& a, u32 mask) {
    w.undefined.resize(w.program->units);
    w.undefined_pc = w.pc();
    const u32 bytes = element_bytes(static_cast<Ty>(i.type));
    for (u32 k = 0; k < i.n_dst; ++k) {
        const i32 unit = w.ops(i)[k];
        if (unit < 0) continue;
        u32 lacking = 0;
        for (u32 l = 0; l < kLanes; ++l) {
            if (!(mask >> l & 1)) continue;
            if (reliable(w, i, a.at[l] + k * bytes, bytes)) continue;
            lacking |= 1u << l;
            w.undefined_in = a.at[l] >= kGlobalBase ? Unwritten::global : Unwritten::shared;
        }
        w.undefined[static_cast<u32>(unit)] = lacking;
    }
}

// Where notes are kept of these bytes, one a byte: in `notes` of `memory`. Null for bytes of other memory.
u8* notes_of(const std::vector<u8>& memory, std::vector<u8>& notes, const u8* at) {
    const std::less<const u8*> before;
    if (before(at, memory.data()) || !before(at, memory.data() + notes.size())) return nullptr;
    return notes.data() + (at - memory.data());
}

u8* local_notes(Warp& w, const u8* at) { return notes_of(w.local, w.local_written, at); }
u8* shared_notes(Warp& w, const u8* at) { return notes_of(w.cta->shared, w.cta->shared_valued, at); }

// What local memory and the CTA's shared memory bring that has no value. Of an element a part is enough here as well:
// there are bits that nobody sets.
[[gnu::noinline]] void check_values(Warp& w, const Inst& i, u8* const (&pointers)[kLanes], u32 mask) {
    const u32 bytes = element_bytes(static_cast<Ty>(i.type));
    const bool doubted = w.unwritten;
    for (u32 k = 0; k < i.n_dst; ++k) {
        const i32 unit = w.ops(i)[k];
        if (unit < 0) continue;
        u32 local = 0, lacking = 0;
        for (u32 l = 0; l < kLanes; ++l) {
            if (!(mask >> l & 1)) continue;
            const u8* const at = pointers[l] + k * bytes;
            const u8* notes = local_notes(w, at);
            local |= static_cast<u32>(notes != nullptr) << l;
            if (!notes) notes = shared_notes(w, at);
            if (notes && std::none_of(notes, notes + bytes, [](u8 note) { return note; })) lacking |= 1u << l;
        }
        if (!lacking && w.undefined.empty()) continue;
        w.undefined.resize(w.program->units);
        u32& undefined = w.undefined[static_cast<u32>(unit)];
        undefined = (doubted ? undefined & ~local : 0) | lacking;
        if (!lacking) continue;
        w.unwritten = true;
        w.undefined_pc = w.pc();
        w.undefined_in = lacking & local ? Unwritten::local : Unwritten::shared;
        w.doubt = {};
    }
}

// What has no value leaves none behind. `followed`: only what is followed, no register that nothing was written to.
[[gnu::noinline]] void forget_values(Warp& w, const Inst& i, u8* const (&pointers)[kLanes], u32 mask,
                                     bool followed = false) {
    const u32 bytes = element_bytes(static_cast<Ty>(i.type));
    for (u32 k = 0; k + 1u < i.n_src; ++k) {
        const i32 unit = w.ops(i)[1 + k];
        u32 lacking = unit < 0 ? 0 : mask & ~w.initialised[static_cast<u32>(unit)];
        if (followed) lacking &= w.undefined[static_cast<u32>(unit)];
        for (u32 l = 0; l < kLanes; ++l) {
            if (!(lacking >> l & 1)) continue;
            u8* notes = local_notes(w, pointers[l] + k * bytes);
            if (!notes) notes = shared_notes(w, pointers[l] + k * bytes);
            if (notes) std::fill_n(notes, bytes, u8{0});
        }
    }
}

bool may_be_local(const Warp& w, Space space) {
    return !w.local_written.empty() && (space == Space::local || space == Space::generic || space == Space::param);
}

}  // namespace

void follow_load(Warp& w, const Inst& i, u8* const (&pointers)[kLanes], u32 mask) {
    const bool may_be_shared = space_of(i) == Space::shared || space_of(i) == Space::generic;
    const bool valued = may_be_shared && !w.cta->shared_valued.empty();
    if (valued || may_be_local(w, space_of(i))) check_values(w, i, pointers, mask);
}

void follow_store(Warp& w, const Inst& i, u8* const (&pointers)[kLanes], u32 mask) {
    if (may_be_local(w, space_of(i))) forget_values(w, i, pointers, mask);
    const bool may_be_shared = space_of(i) == Space::shared || space_of(i) == Space::generic;
    if (w.undefined.empty() || !may_be_shared || w.undefined_in != Unwritten::shared || w.doubt.rule ||
        machine_of(w).profile != Profile::lenient)
        return;
    if (w.cta->shared_valued.empty()) {
        bool any = false;
        for (u32 k = 1; k < i.n_src; ++k)
            if (const i32 unit = w.ops(i)[k]; unit >= 0)
                any = any || (mask & w.undefined[static_cast<u32>(unit)] & ~w.initialised[static_cast<u32>(unit)]);
        if (!any) return;
        w.cta->shared_valued.assign(w.cta->shared.size(), 1);
    }
    forget_values(w, i, pointers, mask, true);
}

namespace {

Flow ld(Warp& w, const Inst& i, u32 mask) {
    Addresses a = lane_addresses(w, w.ops(i)[i.n_dst], i.width_src, i.immediate);
    u8* pointers[kLanes];
    const bool validated = (i.mods & kValidated) && machine_of(w).profile == Profile::lenient;
    resolve_lanes(w, space_of(i), a, mask, element_bytes(static_cast<Ty>(i.type)) * i.n_dst, false, pointers,
                  validated ? Strength::wide : Strength::weak, nullptr, i.mods & kNonCoherent);
    load_values(w, i, mask, pointers);
    if (w.unwritten) leave_undefined(w, i, a, mask);
    follow_load(w, i, pointers, mask);
    return Flow::next;
}

Flow st(Warp& w, const Inst& i, u32 mask) {
    Addresses a = lane_addresses(w, w.ops(i)[0], i.width_dst, i.immediate);
    u8* pointers[kLanes];
    const Space space = space_of(i);
    resolve_lanes(w, space, a, mask, element_bytes(static_cast<Ty>(i.type)) * (i.n_src - 1u), true, pointers,
                  Strength::weak, &i);
    store_values(w, i, mask, pointers);
    follow_store(w, i, pointers, mask);
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_memory(X)  \
    X(ld, by_space, memory) \
    X(st, by_space, memory)
// clang-format on

Handler bind_memory(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::ld: return ld;
        case Op::st: return st;
        default: return nullptr;
    }
}

}  // namespace ptxm
