// cp.async.bulk.tensor from global to shared memory: boxes and gathered rows, to one CTA or to several of the cluster.
#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/async/async.hpp"
#include "machine/machine.hpp"
#include "machine/names.hpp"
#include "machine/observer.hpp"
#include "memory/tensor_map/tensor_map.hpp"
#include "ptx/barriers/mbarrier.hpp"
#include "ptx/copies/bulk.hpp"

namespace ptxm {

SharedRef resolve_bulk_shared(Warp& w, u32 address, u32 bytes, u32 alignment, const char* what) {
    const SharedRef ref = resolve_shared(w, address, bytes, what);
    if (ref.offset % alignment)
        throw Fault("misaligned", format("%s at %s: it is aligned to %u bytes", what,
                                         shared_place(*ref.cta, ref.offset).c_str(), alignment));
    return ref;
}

// Where the signal of a copy into CTA `rank` goes (PTX ISA 9.7.9.25.5.2): with .cta_group::1 to the destination's own
// CTA, with .cta_group::2 to the CTA of its pair that has the parity of the mbarrier's.
u32 signal_rank(u32 rank, u32 mbarrier_rank, bool pair) { return pair ? (rank & ~1u) | (mbarrier_rank & 1) : rank; }

std::vector<u32> multicast_ranks(Warp& w, u32 mask) {
    const std::size_t n = w.cta->cluster->ctas.size();
    if (mask == 0 || mask >> n)
        throw Fault("multicast-mask", format("multicast to CTA mask 0x%04x of a cluster of %zu", mask, n));
    std::vector<u32> ranks;
    for (u32 r = 0; r < n; ++r)
        if (mask >> r & 1) ranks.push_back(r);
    return ranks;
}

void check_signal(u32 destination, u32 mbarrier, bool pair) {
    if (pair ? destination >> 1 == mbarrier >> 1 : destination == mbarrier) return;
    throw Fault("bulk-copy-mbarrier",
                format("a copy into CTA rank %u signals an mbarrier of CTA rank %u; it has to be %s", destination,
                       mbarrier, pair ? "of the same CTA pair" : "the same CTA"));
}

namespace {

constexpr u32 kTensorAlignment = 128;

// The swizzle follows the address and not the row (PTX ISA 5.5.7): a box that holds the pattern whole and begins within
// one lies otherwise than readers assume who count its rows.
void check_swizzle_base(Warp& w, const Box& box, const Cta& to, u32 offset) {
    const u32 span = swizzle_span(box.map.swizzle), pattern = swizzle_pattern(box.map.swizzle);
    if (!span || offset % pattern == 0 || box.shared_bytes() < pattern) return;
    Machine& m = machine_of(w);
    if (m.findings->seen("swizzle-base", w.pc(), -1)) return;
    m.report(&w, "swizzle-base",
             format("a box with the %u-byte swizzle lands at %s, %u bytes into a pattern that repeats every %u: its "
                    "first bytes lie as those of line %u of 128 bytes of the pattern do",
                    span, shared_place(to, offset).c_str(), offset % pattern, pattern, offset % pattern / 128),
             w.pc(), -1, Severity::warning);
}

void copy_to(Warp& w, const Box& box, Cta& to, u32 offset, const TxSource& source) {
    Machine& m = machine_of(w);
    if (m.checks && m.profile == Profile::strict) check_swizzle_base(w, box, to, offset);
    const u32 bytes = box.data_bytes(), pc = static_cast<u32>(w.pc());
    touch_box_shared(to, w, box, offset, Accessor{source.agent, source.clock(), pc, true});
    if (Observer* const o = Observer::of(m); o && o->wants_operands()) o->copies({&w, w.pc(), &to, offset, true, &box});
    m.stats.bulk_loads += 1;
    m.stats.bulk_load_bytes += bytes;
    start_async(w, false, 500 + bytes / 64, [&m, &to, box, offset, bytes, source, pc] {
        load_box(m.global, box, to, offset, m.box);
        end_tx(source, bytes, static_cast<i32>(pc));
    });
}

// Operands: destination, map, coordinates, mbarrier, [CTA mask].
Flow load_tensor(Warp& w, const Inst& i, u32 mask) {
    static const char* const what = "bulk tensor copy";
    const i32* o = w.ops(i);
    Cluster& cluster = *w.cta->cluster;
    const bool pair = i.mods & kTmaPair;
    const i32* after = o + 2 + coordinate_units(i.mods);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const Box box = read_loaded_box(w, w.reg<u64>(o[1])[l], o + 2, l, i.mods);
        const SharedRef to = resolve_bulk_shared(w, w.reg<u32>(o[0])[l], box.shared_bytes(), kTensorAlignment, what);
        const SharedRef at = resolve_shared(w, w.reg<u32>(after[0])[l], 8, "bulk tensor copy's mbarrier");
        const auto read_by = [&](AgentId agent, u32 clock) {
            touch_box(w, box, Accessor{agent, clock, static_cast<u32>(w.pc()), false});
        };
        if (!(i.mods & kBulkMulticast)) {
            check_signal(to.cta->rank, at.cta->rank, pair);
            const TxSource source = begin_tx(w, at.cta->shared_address(at.offset), what);
            read_by(source.agent, source.clock());
            copy_to(w, box, *to.cta, to.offset, source);
            continue;
        }
        // One read for all ranks, which is over once the bytes have come to any of them: it is taken for the issuer's.
        read_by(w.clocks.self, w.clocks.epoch());
        for (u32 rank : multicast_ranks(w, w.reg<u16>(after[1])[l])) {
            const u32 signal = signal_rank(rank, at.cta->rank, pair);
            if (signal >= cluster.ctas.size())
                throw Fault("bulk-copy-mbarrier", format("CTA rank %u has no peer in the cluster", rank));
            const u32 at_rank = cluster.ctas[signal]->shared_address(at.offset);
            copy_to(w, box, *cluster.ctas[rank], to.offset, begin_tx(w, at_rank, what));
        }
    }
    return Flow::next;
}

// Changes no state; the map and the coordinates have to be good all the same. Operands: map, coordinates.
Flow prefetch_tensor(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l)
        if (mask >> l & 1) read_loaded_box(w, w.reg<u64>(o[0])[l], o + 1, l, i.mods);
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_tma(X)    \
    X(tma_load, copy, tma) \
    X(tma_prefetch, copy, tma)
// clang-format on

Handler bind_tma(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::tma_load: return load_tensor;
        case Op::tma_prefetch: return prefetch_tensor;
        default: return nullptr;
    }
}

}  // namespace ptxm
