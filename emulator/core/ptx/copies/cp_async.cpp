// Non-bulk cp.async and its groups (PTX ISA 9.7.9.25.3), cp.async.mbarrier.arrive (9.7.13.15.15).
//
// The bytes land when the copy completes. A copy is ordered before its thread's later accesses by a wait on its group,
// and before other threads' by a barrier after that or by the mbarrier that tracks it.
#include <algorithm>
#include <bit>

#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/async/async.hpp"
#include "machine/machine.hpp"
#include "machine/names.hpp"
#include "order/conflicts/conflicts.hpp"
#include "ptx/barriers/mbarrier.hpp"
#include "ptx/copies/cp_async.hpp"
#include "ptx/memory/generic_access.hpp"
#include "ptx/mma/matrix.hpp"

namespace ptxm {
namespace {

u64 lane_address(Warp& w, i32 unit, bool wide, u32 lane, i32 offset) {
    return wide ? w.reg<u64>(unit)[lane] + static_cast<u64>(static_cast<i64>(offset))
                : w.reg<u32>(unit)[lane] + static_cast<u32>(offset);
}

}  // namespace

u64 source_address(Warp& w, const Inst& i, u32 lane) {
    return lane_address(w, w.ops(i)[1], i.mods & kCopyWideSource, lane, static_cast<i32>(i.immediate >> 32));
}

u32 source_bytes(Warp& w, const Inst& i, u32 lane) {
    const i32* o = w.ops(i);
    const u32 bytes = i.mods >> kCopyBytesShift & 0x1F;
    if (i.mods & kCopyIgnore) {
        const bool ignore = (w.pred(o[2]) >> lane & 1) != static_cast<bool>(i.mods & kCopyIgnoreNegated);
        return ignore ? 0 : bytes;
    }
    if (!(i.mods & kCopySize)) return bytes;
    const u32 n = w.reg<u32>(o[2])[lane];
    if (n > bytes) throw Fault("cp-async-size", format("cp.async: src-size %u exceeds cp-size %u", n, bytes));
    return n;
}

namespace {

constexpr u64 kCopyLatency = 400;

AgentId agent_of(Warp& w) {
    CopyGroups& g = w.copies;
    if (!g.has_agent) {
        g.has_agent = true;
        g.agent = w.cta->cluster->new_agent(
            {AgentKind::cp_async, static_cast<u16>(w.cta->rank), static_cast<u16>(w.index), 0});
    }
    return g.agent;
}

struct Piece {
    u8* to;
    const u8* from;  // null: all zeros
    u32 bytes;       // of the source; the rest is zeros
};

struct Transfer {
    Piece pieces[kLanes];
    u32 count = 0;
    u32 bytes = 0;  // of a destination
    void run() const {
        for (u32 k = 0; k < count; ++k) {
            const Piece& p = pieces[k];
            if (p.bytes == 16) {  // mostly: a move
                std::memcpy(p.to, p.from, 16);
                continue;
            }
            if (p.bytes) std::memcpy(p.to, p.from, p.bytes);
            std::memset(p.to + p.bytes, 0, bytes - p.bytes);
        }
    }
};

// Each lane has all of its bytes, or zeros in their place.
struct WholeTransfer {
    u8* shared;
    u32 lanes, bytes;
    u32 to[kLanes];
    const u8* from[kLanes];  // null: zeros
    void run() const {
        switch (bytes) {
            case 4: return run<4>();
            case 8: return run<8>();
            default: return run<16>();
        }
    }

private:
    template <u32 kBytes>
    void run() const {
        static constexpr u8 kZeros[kBytes] = {};
        for (u32 l = 0; l < kLanes; ++l)
            if (lanes >> l & 1) std::memcpy(shared + to[l], from[l] ? from[l] : kZeros, kBytes);
    }
};

void fire(Warp& w, const CopyGroups::Arrival& arrival) {
    Cta& cta = *w.cta->cluster->ctas[arrival.address >> kSharedRankShift];
    const u32 offset = arrival.address & kSharedOffsetMask;
    auto it = cta.mbarriers.find(offset);
    if (it == cta.mbarriers.end())
        throw Fault("mbarrier-uninitialised",
                    format("cp.async.mbarrier.arrive on %s, where the mbarrier has been invalidated",
                           shared_place(cta, offset).c_str()));
    Message message;
    message.cluster = cta.cluster->number;
    if (arrival.clock) message.generic.raise(w.copies.agent, arrival.clock);
    mbarrier_arrive(nullptr, cta, offset, it->second, arrival.count, &message);
}

bool all_complete(const CopyGroups& g, u32 clock, u32 lanes) {
    for (const CopyGroups::Copy& c : g.copies) {
        if (c.clock > clock) break;
        if (!c.complete && (c.lanes & lanes)) return false;
    }
    return true;
}

// A copy is done, or an arrival due: what waited for it goes on.
void settle(Warp& w) {
    CopyGroups& g = w.copies;
    for (u32 k = 0; k < g.arrivals.size();) {
        if (!all_complete(g, g.arrivals[k].clock, g.arrivals[k].lanes)) {
            ++k;
            continue;
        }
        const CopyGroups::Arrival due = g.arrivals[k];
        g.arrivals.erase(g.arrivals.begin() + k);
        fire(w, due);
    }
    for (Fragment& f : w.fragments) {
        if (f.wait != Wait::async_group) continue;
        f.wait = Wait::none;
        w.time = std::max(w.time, w.cta->cluster->now);
    }
}

void mark_complete(Warp& w, u32 clock) {
    auto& copies = w.copies.copies;
    const auto copy = std::ranges::lower_bound(copies, clock, {}, &CopyGroups::Copy::clock);
    if (copy != copies.end() && copy->clock == clock) copy->complete = true;
    settle(w);
}

// One access where there is nothing to report; otherwise one of each run, each with its conflicts.
void touch_sources(Warp& w, std::span<const Range> runs, const Accessor& who) {
    if (runs.empty()) return;
    Allocation& first = resolve_global(w, runs[0].start, runs[0].bytes, "cp.async");
    const auto lies_there = [&](const Range& r) { return first.holds(r.start, r.bytes); };
    if (std::all_of(runs.begin(), runs.end(), lies_there) && touch_global_quietly(first, w, runs, who)) return;
    for (const Range& r : runs)
        touch_global(resolve_global(w, r.start, r.bytes, "cp.async"), w, r.start, r.bytes, who, false);
}

// Copies of one instruction are one access.
Accessor accessor_of(Warp& w, bool write) { return {agent_of(w), w.copies.issued, static_cast<u32>(w.pc()), write}; }

template <class T>
void start(Warp& w, u32 mask, const T& transfer) {
    const u32 clock = w.copies.issued;
    w.copies.copies.push_back({clock, mask, false});
    start_async(w, false, kCopyLatency, [&w, transfer, clock] {
        transfer.run();
        mark_complete(w, clock);
    });
}

// The lanes of `mask` that have a source; false where one has a part of its bytes.
bool find_sources(Warp& w, const Inst& i, u32 mask, u32 bytes, u32& sources) {
    sources = mask;
    if (!(i.mods & (kCopyIgnore | kCopySize))) return true;  // and there is no such operand
    const u32 operand = static_cast<u32>(w.ops(i)[2]);
    if (i.mods & kCopyIgnore) sources &= i.mods & kCopyIgnoreNegated ? w.pred(operand) : ~w.pred(operand);
    if (i.mods & kCopyIgnore) return true;
    u32 none = 0, all = 0;
    const u32* sizes = w.reg<u32>(operand);
    for (u32 l = 0; l < kLanes; ++l) {
        none |= static_cast<u32>(sizes[l] == 0) << l;
        all |= static_cast<u32>(sizes[l] == bytes) << l;
    }
    sources &= all;
    return (mask & ~(none | all)) == 0;
}

// The addresses of some lanes; the others have that of one of them.
struct Lanes {
    Addresses a;
    u64 low = ~u64{0}, high = 0, bits = 0;
    Lanes(const Addresses& all, u32 mask) : a(all) {
        const u64 first = a.at[std::countr_zero(mask)];
        for (u32 l = 0; l < kLanes; ++l) {
            a.at[l] = mask >> l & 1 ? a.at[l] : first;
            low = std::min(low, a.at[l]);
            high = std::max(high, a.at[l]);
            bits |= a.at[l];
        }
    }
    LanePieces pieces(u32 bytes) const { return {a.at, bytes, low, high + bytes}; }
};

// What most copies are: of all bytes or none, from one allocation, with nothing to report. False, and nothing has
// happened, where this one is not.
bool copy_whole(Warp& w, const Inst& i, u32 mask, u32 bytes, const Addresses& to_all, const Addresses& from_all) {
    Machine& m = machine_of(w);
    u32 sources = 0;
    if (m.global.logs() || !find_sources(w, i, mask, bytes, sources)) return false;
    const Lanes to(to_all, mask);
    const u64 own = u64{w.cta->rank} << kSharedRankShift;
    if (to.bits % bytes || to.low < own + kSharedStart || to.high > own + kSharedOffsetMask ||
        to.high + bytes > own + w.cta->shared.size())
        return false;
    // As the copies of several lanes are checked, the alignment of all addresses is.
    const Lanes from(from_all, mask);
    if (from.bits % bytes) return false;
    WholeTransfer transfer{w.cta->shared.data(), mask, bytes, {}, {}};
    for (u32 l = 0; l < kLanes; ++l) transfer.to[l] = static_cast<u32>(to.a.at[l] - own);
    w.copies.issued += 1;
    if (sources) {
        const Lanes read(from_all, sources);
        Allocation* const all = m.global.find(read.low, read.high - read.low + bytes);
        if (!all || (m.checks && !touch_global_lanes(*all, w, read.pieces(bytes), accessor_of(w, false)))) {
            w.copies.issued -= 1;
            return false;
        }
        for (u32 l = 0; l < kLanes; ++l) {
            const u8* const from = all->data.get() + (read.a.at[l] - all->base);
            transfer.from[l] = sources >> l & 1 ? from : nullptr;
            __builtin_prefetch(from, 0, 2);  // they will be copied in a while
        }
    }
    if (m.checks && !touch_shared_lanes(w, to.pieces(bytes), accessor_of(w, true))) {
        w.copies.issued -= 1;
        return false;
    }
    start(w, mask, transfer);
    return true;
}

// Operands: destination, source, [src-size | ignore-src]. The immediate holds the two address offsets.
Flow copy(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const u32 bytes = i.mods >> kCopyBytesShift & 0x1F;
    const i32 to_offset = static_cast<i32>(i.immediate), from_offset = static_cast<i32>(i.immediate >> 32);
    if (copy_whole(w, i, mask, bytes, lane_addresses(w, o[0], i.mods & kCopyWideDestination ? 64 : 32, to_offset),
                   lane_addresses(w, o[1], i.mods & kCopyWideSource ? 64 : 32, from_offset)))
        return Flow::next;
    Transfer transfer;
    transfer.bytes = bytes;
    Pieces reads, writes;
    const Allocation* recent = nullptr;  // of the lane before, mostly this one's too
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const u64 to_address = lane_address(w, o[0], i.mods & kCopyWideDestination, l, to_offset);
        const u64 from = source_address(w, i, l);
        const u32 to = own_shared(w, to_address, false, bytes, "cp.async");
        if (to % bytes || from % bytes)
            throw Fault("misaligned", format("cp.async of %u bytes from 0x%llx to shared 0x%x (lane %u): both are "
                                             "aligned to its size",
                                             bytes, (unsigned long long)from, to, l));
        const u32 n = source_bytes(w, i, l);
        const u8* source = nullptr;
        if (n) {
            if (!recent || !recent->holds(from, n)) recent = &resolve_global(w, from, n, "cp.async");
            source = recent->data.get() + (from - recent->base);
            reads.add(from, n);
        }
        writes.add(to, bytes);
        transfer.pieces[transfer.count++] = {w.cta->shared.data() + to, source, n};
    }
    w.copies.issued += 1;
    touch_sources(w, reads.runs(), accessor_of(w, false));
    touch_shared(*w.cta, w, writes.runs(), accessor_of(w, true), false);
    start(w, mask, transfer);
    return Flow::next;
}

Flow commit(Warp& w, const Inst&, u32 mask) {
    w.copies.commits.push_back({mask, w.copies.issued});
    return Flow::next;
}

// The last copy that a lane has to wait for so that at most `pending` of its groups remain.
u32 wait_target(const CopyGroups& g, u32 lane, u32 pending) {
    u32 groups = 0;
    for (auto c = g.commits.rbegin(); c != g.commits.rend(); ++c)
        if (c->lanes >> lane & 1 && ++groups > pending) return c->clock;
    return 0;
}

// What the warp knows: every copy up to the first that some lane has not waited for.
void learn(Warp& w, u32 target, u32 lanes) {
    CopyGroups& g = w.copies;
    for (CopyGroups::Copy& c : g.copies)
        if (c.clock <= target) c.lanes &= ~lanes;
    while (!g.copies.empty() && (g.copies.front().lanes & w.live) == 0) g.copies.pop_front();
    const u32 known = g.copies.empty() ? g.issued : g.copies.front().clock - 1;
    if (known) w.clocks.generic.raise(g.agent, known);
    while (!g.commits.empty() && g.commits.front().clock <= known) g.commits.pop_front();
}

Flow wait(Warp& w, const Inst& i, u32 mask) {
    CopyGroups& g = w.copies;
    // Lanes with one history, which is the rule, wait for one copy.
    for (u32 rest = mask; rest;) {
        const u32 lane = static_cast<u32>(std::countr_zero(rest));
        const u32 target = i.mods & kCopyAll ? g.issued : wait_target(g, lane, static_cast<u32>(i.immediate));
        u32 same = 0;
        for (u32 l = lane; l < kLanes; ++l)
            if (rest >> l & 1 && (i.mods & kCopyAll || wait_target(g, l, static_cast<u32>(i.immediate)) == target))
                same |= 1u << l;
        if (!all_complete(g, target, same)) {
            w.fragment().wait = Wait::async_group;
            return Flow::stay;
        }
        learn(w, target, same);
        rest &= ~same;
    }
    w.copies_waited = {w.pc(), i.mods & kCopyAll ? 0 : static_cast<u32>(i.immediate),
                       g.commits.empty() ? 0 : g.commits.back().clock};
    return Flow::next;
}

// The mbarrier receives an arrival of each lane once the lane's earlier copies are complete. Without .noinc its pending
// count is raised first, so that the arrival is not one of those the barrier was initialised for.
Flow arrive(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 rest = mask; rest;) {
        const u32 lane = static_cast<u32>(std::countr_zero(rest));
        const auto address_of = [&](u32 l) {
            return lane_address(w, o[0], i.width_src == 64, l, static_cast<i32>(i.immediate));
        };
        u64 address = address_of(lane);
        u32 same = 0;
        for (u32 l = lane; l < kLanes; ++l)
            if (rest >> l & 1 && address_of(l) == address) same |= 1u << l;
        rest &= ~same;
        if ((address & kWindowMask) == kSharedWindow) address &= ~kWindowMask;
        Mbarrier& bar = mbarrier_at(w, static_cast<u32>(address), "cp.async.mbarrier.arrive");
        check_mbarrier_visible(w, bar, false);
        const u32 count = static_cast<u32>(std::popcount(same));
        if (!(i.mods & kCopyNoinc)) {
            if (bar.pending + count >= 1u << 20)
                throw Fault("mbarrier-count", "cp.async.mbarrier.arrive raises a pending count beyond 2^20-1");
            bar.pending += count;
        }
        const SharedRef at = resolve_shared(w, static_cast<u32>(address), 8, "cp.async.mbarrier.arrive");
        const CopyGroups::Arrival arrival{w.copies.issued, same, at.cta->shared_address(at.offset), count};
        start_async(w, false, 0, [&w, arrival] {
            w.copies.arrivals.push_back(arrival);
            settle(w);
        });
    }
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_cp_async(X)                                                                    \
    X(cp_async, copy, cp_async)                                                                 \
    X(cp_async_commit, copy, cp_async, "cp.async.commit_group")                                 \
    X(cp_async_wait, copy, cp_async, "cp.async.wait_group #groups; cp.async.wait_all=copy_all") \
    X(cp_async_mbar, copy, cp_async,                                                            \
      "cp.async.mbarrier.arrive[.noinc=copy_noinc][.shared=|.shared::cta=].b64 [a:shared]")
// clang-format on

Handler bind_cp_async(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::cp_async: return copy;
        case Op::cp_async_commit: return commit;
        case Op::cp_async_wait: return wait;
        case Op::cp_async_mbar: return arrive;
        default: return nullptr;
    }
}

}  // namespace ptxm
