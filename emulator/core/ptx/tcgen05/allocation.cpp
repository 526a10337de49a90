// Tensor memory allocation (PTX ISA 9.7.16.7). With cta_group::2, one warp of each CTA of a pair performs alloc and
// dealloc together: the first waits for the second, which does the work for both.
#include "ptx/tcgen05/allocation.hpp"

#include <algorithm>
#include <bit>

#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/machine.hpp"
#include "order/conflicts/conflicts.hpp"
#include "order/conflicts/tensor_memory_conflicts.hpp"
#include "ptx/tcgen05/tcgen05.hpp"

namespace ptxm {

void require_allocated(Warp& w, const Cta& cta, u32 column, u32 count, const char* what) {
    const Tmem& t = cta.tmem;
    if (t.allocated(column, count)) return;
    const u32 last = column + count - 1;
    i32 freed_by = -1;
    for (u32 g = column / Tmem::kGranule; g <= last / Tmem::kGranule; ++g) {
        if (g < t.freed.size() && (t.owner[g] || t.freed[g])) {
            if (!t.owner[g]) freed_by = t.freed[g] - 1;
            continue;
        }
        throw Fault("tmem-unallocated", format("%s of columns %u-%u, which are not all allocated", what, column, last));
    }
    machine_of(w).report(&w, "tmem-deallocated",
                         format("%s of columns %u-%u, which have been deallocated: another CTA may have them by now",
                                what, column, last),
                         w.pc(), freed_by);
}

namespace {

constexpr u32 kGranules = Tmem::kColumns / Tmem::kGranule;

// First granule of a free run in every tensor memory at hand, aligned to its size; kGranules when there is none.
u32 find_free(std::initializer_list<const Tmem*> memories, u32 need) {
    for (u32 first = 0; first + need <= kGranules; first += need) {
        bool free = true;
        for (const Tmem* t : memories)
            for (u32 g = first; g < first + need; ++g) free = free && !t->owner[g];
        if (free) return first;
    }
    return kGranules;
}

void take(Warp& w, u32 first, u32 columns, u32 result) {
    Tmem& t = w.cta->tmem;
    t.prepare();
    const Access by = Accessor{w.clocks.self, w.clocks.epoch(), static_cast<u32>(w.pc()), true}.access();
    for (u32 g = first; g < first + columns / Tmem::kGranule; ++g) {
        t.owner[g] = w.pc() + 1;
        t.taken[g] = by;
        t.used |= 1u << g;
        t.block[g] = static_cast<u16>(first);
        t.freed[g] = 0;
    }
    t.shadow.forget(first * Tmem::kGranule, columns);
    t.last_columns = columns;
    machine_of(w).tensor_columns += columns;
    const SharedRef to = resolve_shared(w, result, 4, "tcgen05.alloc");
    w.clocks.note_access(kAllLanes);
    touch_shared(*to.cta, w, to.offset, 4, Accessor{w.clocks.self, w.clocks.epoch(), static_cast<u32>(w.pc()), true},
                 false);
    const u32 value = first * Tmem::kGranule;
    std::memcpy(to.cta->shared.data() + to.offset, &value, 4);
}

void check_size(Warp& w, u32 columns) {
    Tmem& t = w.cta->tmem;
    if (columns < 32 || columns > Tmem::kColumns || !std::has_single_bit(columns))
        throw Fault("tmem-alloc-size",
                    format("tcgen05.alloc of %u columns; a power of two of 32..512 is allowed", columns));
    if (t.relinquished) throw Fault("tmem-alloc-relinquished", "tcgen05.alloc after tcgen05.relinquish_alloc_permit");
    if (t.last_columns && columns > t.last_columns)
        machine_of(w).report_strict(
            &w, "tmem-alloc-increase",
            format("tcgen05.alloc of %u columns after one of %u: the number does not increase in a CTA", columns,
                   t.last_columns),
            w.pc());
}

u32 result_address(Warp& w, const Inst& i, u32 lane) {
    const i32 unit = w.ops(i)[0];
    u64 address = i.width_src == 64 ? w.reg<u64>(unit)[lane] : w.reg<u32>(unit)[lane];
    if ((address & kWindowMask) == kSharedWindow) address &= ~kWindowMask;
    return static_cast<u32>(address + static_cast<u64>(i.immediate));
}

void wake(Warp& w, Fragment& f) {
    f.wait = Wait::none;
    w.time = std::max(w.time, w.cta->cluster->now);
}

// Warps of this CTA that wait for columns try again; one that waits for its peer goes on waiting.
void wake_allocators(Cta& cta) {
    const PairCall& call = cta.tmem.pair_call;
    for (Warp& w : cta.warps)
        for (Fragment& f : w.fragments)
            if (f.wait == Wait::tmem && !(call.waiting && call.warp == w.index)) wake(w, f);
}

// The CTAs of a grid share the multiprocessors' tensor memories: it does not matter which of them has which.
bool taken_by_others(const Machine& m, u32 columns) {
    return m.tensor_columns + columns > m.multiprocessors * Tmem::kColumns;
}

Flow wait_for_tmem(Warp& w, bool for_clusters = false) {
    w.fragment().wait = Wait::tmem;
    w.fragment().wait_for_clusters = for_clusters;
    return Flow::stay;
}

}  // namespace

bool retry_allocators(Cluster& cluster) {
    bool any = false;
    for (auto& cta : cluster.ctas) {
        for (Warp& w : cta->warps) {
            for (Fragment& f : w.fragments) {
                if (f.wait != Wait::tmem || !f.wait_for_clusters) continue;
                wake(w, f);
                w.unpolled = 0;  // to ask again is no work
                any = true;
            }
        }
    }
    return any;
}

namespace {

// The warp of the peer CTA that is already here, or null after leaving this warp's own call for it.
Warp* meet_peer(Warp& w, Cta& peer, const PairCall& mine) {
    PairCall& theirs = peer.tmem.pair_call;
    if (!theirs.waiting) {
        PairCall& own = w.cta->tmem.pair_call;
        if (own.waiting)
            throw Fault("cta-pair", format("two warps of CTA rank %u allocate tensor memory with cta_group::2 at once",
                                           w.cta->rank));
        own = mine;
        return nullptr;
    }
    if (theirs.dealloc != mine.dealloc || theirs.columns != mine.columns ||
        (mine.dealloc && theirs.address != mine.address))
        throw Fault("cta-pair",
                    format("tcgen05.%s of %u columns by CTA rank %u meets tcgen05.%s of %u columns by its peer",
                           mine.dealloc ? "dealloc" : "alloc", mine.columns, w.cta->rank,
                           theirs.dealloc ? "dealloc" : "alloc", theirs.columns));
    return &peer.warps[theirs.warp];
}

void release_peer(Cta& peer, Warp& other) {
    peer.tmem.pair_call.waiting = false;
    for (Fragment& f : other.fragments) {
        if (f.wait != Wait::tmem) continue;
        wake(other, f);
        f.passed_barrier = true;
    }
}

// Whether the execution of this is ordered before this warp's: by memory order, or by a relaxed cluster barrier.
bool comes_after(const Warp& w, AgentId agent, u32 clock) {
    return std::max(w.clocks.known_shared(agent), w.cta->exit_ordered.get(agent)) >= clock;
}

// "The issuing warp must make sure that the peer CTA is launched" (PTX ISA 9.7.16.7.1): it has heard of one of its
// warps.
void check_peer_launched(Warp& w, const Cta& peer) {
    Machine& m = machine_of(w);
    const auto heard_of = [&](const Warp& other) { return comes_after(w, other.clocks.self, 1); };
    if (!m.checks || std::ranges::any_of(peer.warps, heard_of)) return;
    m.report(
        &w, "tmem-pair-alloc",
        format("CTA %u allocates tensor memory with cta_group::2, and nothing says that its peer, CTA %u, has been "
               "launched: no cluster barrier, and nothing else from it, comes before",
               w.cta->linear, peer.linear),
        w.pc());
}

// To one CTA of a pair, deallocation that its peer's allocation may come after.
void check_peer_allocated(Warp& w, i32 pc, const Cta& peer, u32 column) {
    Machine& m = machine_of(w);
    const u32 granule = column / Tmem::kGranule;
    if (!m.checks || granule >= kGranules || !peer.tmem.owner[granule]) return;
    const Access& by = peer.tmem.taken[granule];
    if (comes_after(w, by.agent, by.clock)) return;
    m.report(&w, "tmem-pair-dealloc",
             format("CTA %u deallocates tensor memory with cta_group::2, and its peer, CTA %u, may not have allocated "
                    "it yet: nothing orders its tcgen05.alloc before",
                    w.cta->linear, peer.linear),
             pc, static_cast<i32>(by.pc));
}

Flow alloc_pair(Warp& w, u32 columns, u32 result) {
    const auto ctas = tc::ctas_of(w, true, "tcgen05.alloc");
    Cta& peer = *ctas[w.cta->rank & 1 ? 0 : 1];
    check_peer_launched(w, peer);
    const u32 first = find_free({&w.cta->tmem, &peer.tmem}, columns / Tmem::kGranule);
    if (!peer.tmem.pair_call.waiting && taken_by_others(machine_of(w), 2 * columns)) return wait_for_tmem(w, true);
    Warp* other = meet_peer(w, peer, {true, false, w.index, columns, result, w.pc()});
    if (!other) return wait_for_tmem(w);
    if (first == kGranules)
        throw Fault("tmem-alloc-blocked",
                    format("tcgen05.alloc of %u columns by a CTA pair that holds too many itself", columns));
    take(w, first, columns, result);
    take(*other, first, columns, peer.tmem.pair_call.address);
    release_peer(peer, *other);
    return Flow::next;
}

Flow alloc(Warp& w, const Inst& i, u32 mask) {
    Fragment& f = w.fragment();
    if (f.passed_barrier) {
        f.passed_barrier = false;
        return Flow::next;
    }
    const u32 lane = static_cast<u32>(std::countr_zero(mask));
    const u32 columns = w.reg<u32>(w.ops(i)[1])[lane], result = result_address(w, i, lane);
    check_size(w, columns);
    if (i.mods & kTcPair) return alloc_pair(w, columns, result);
    tc::ctas_of(w, false, "tcgen05.alloc");
    const u32 first = find_free({&w.cta->tmem}, columns / Tmem::kGranule);
    if (first == kGranules) return wait_for_tmem(w);
    if (taken_by_others(machine_of(w), columns)) return wait_for_tmem(w, true);
    take(w, first, columns, result);
    return Flow::next;
}

std::string what_lies_at(Warp& w, u32 address) {
    const Tmem& t = w.cta->tmem;
    const u32 at = address % Tmem::kGranule == 0 && address < Tmem::kColumns ? address / Tmem::kGranule : kGranules;
    if (at == kGranules) return {};
    const auto line = [&](i32 mark) { return w.program->insts[static_cast<u32>(mark - 1)].line; };
    if (!t.owner[at]) return t.freed[at] ? format(": it was given back at PTX line %u", line(t.freed[at])) : "";
    const u32 first = t.block[at];
    u32 end = first;
    while (end < kGranules && t.owner[end] && t.block[end] == first) ++end;
    return format(": the one there has %u columns from 0x%x, of tcgen05.alloc at PTX line %u",
                  (end - first) * Tmem::kGranule, first * Tmem::kGranule, line(t.owner[at]));
}

void give_back(Warp& w, u32 address, u32 columns) {
    Tmem& t = w.cta->tmem;
    const u32 first = address / Tmem::kGranule, count = columns / Tmem::kGranule;
    const bool whole = address % Tmem::kGranule == 0 && columns % Tmem::kGranule == 0 && columns &&
                       address < Tmem::kColumns && t.allocated(address, columns) && t.block[first] == first &&
                       t.block[first + count - 1] == first &&
                       (first + count == kGranules || !t.owner[first + count] || t.block[first + count] != first);
    if (!whole)
        throw Fault("tmem-dealloc", format("tcgen05.dealloc of %u columns at 0x%x is no allocation of this CTA%s",
                                           columns, address, what_lies_at(w, address).c_str()));
    // Giving columns back is a write: nobody may still be reading or writing them. fence::after_thread_sync orders the
    // asynchronous instructions behind it (PTX ISA 9.7.16.6), and this one is synchronous.
    touch_tmem(*w.cta, w, 0, Tmem::kLanesTotal, address, columns,
               Accessor{w.clocks.st, ++w.clocks.st_issued, static_cast<u32>(w.pc()), true}, "tcgen05.dealloc", true);
    w.clocks.wait_st();
    for (u32 g = first; g < first + count; ++g) {
        t.owner[g] = 0;
        t.freed[g] = w.pc() + 1;
    }
    t.gave_back = true;
    machine_of(w).tensor_columns -= columns;
    t.shadow.forget(address, columns);
    wake_allocators(*w.cta);
}

Flow dealloc(Warp& w, const Inst& i, u32 mask) {
    Fragment& f = w.fragment();
    if (f.passed_barrier) {
        f.passed_barrier = false;
        return Flow::next;
    }
    const i32* o = w.ops(i);
    const u32 lane = static_cast<u32>(std::countr_zero(mask));
    const u32 address = w.reg<u32>(o[0])[lane], columns = w.reg<u32>(o[1])[lane];
    const bool pair = i.mods & kTcPair;
    const auto ctas = tc::ctas_of(w, pair, "tcgen05.dealloc");
    if (!pair) {
        give_back(w, address, columns);
        return Flow::next;
    }
    Cta& peer = *ctas[w.cta->rank & 1 ? 0 : 1];
    Warp* other = meet_peer(w, peer, {true, true, w.index, columns, address, w.pc()});
    if (!other) return wait_for_tmem(w);
    check_peer_allocated(w, w.pc(), peer, address);
    check_peer_allocated(*other, peer.tmem.pair_call.pc, *w.cta, address);
    give_back(w, address, columns);
    give_back(*other, address, columns);
    release_peer(peer, *other);
    return Flow::next;
}

Flow relinquish(Warp& w, const Inst& i, u32) {
    tc::ctas_of(w, i.mods & kTcPair, "tcgen05.relinquish_alloc_permit");
    w.cta->tmem.relinquished = true;
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_tmem_alloc(X)                                                                                    \
    X(tmem_alloc, tensor_memory, tmem_alloc,                                                                      \
      "tcgen05.alloc{.cta_group::1=|.cta_group::2=tc_pair}.sync.aligned.b32 [a:generic], columns:u32; "           \
      "tcgen05.alloc{.cta_group::1=|.cta_group::2=tc_pair}.sync.aligned.shared::cta.b32 [a:shared], columns:u32") \
    X(tmem_dealloc, tensor_memory, tmem_alloc,                                                                    \
      "tcgen05.dealloc{.cta_group::1=|.cta_group::2=tc_pair}.sync.aligned.b32 a, columns:u32")                    \
    X(tmem_relinquish, tensor_memory, tmem_alloc,                                                                 \
      "tcgen05.relinquish_alloc_permit{.cta_group::1=|.cta_group::2=tc_pair}.sync.aligned")
// clang-format on

Handler bind_tmem_alloc(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::tmem_alloc: return alloc;
        case Op::tmem_dealloc: return dealloc;
        case Op::tmem_relinquish: return relinquish;
        default: return nullptr;
    }
}

}  // namespace ptxm
