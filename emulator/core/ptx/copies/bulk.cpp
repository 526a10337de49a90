// cp.async.bulk and cp.reduce.async.bulk without a tensor map (PTX ISA 9.7.9.25.4): addresses and sizes in multiples of
// 16 bytes.
#include "ptx/copies/bulk.hpp"

#include <algorithm>

#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/async/async.hpp"
#include "machine/machine.hpp"
#include "order/conflicts/conflicts.hpp"
#include "ptx/barriers/mbarrier.hpp"
#include "ptx/copies/bulk_group.hpp"
#include "ptx/copies/reduction.hpp"

namespace ptxm {
namespace {

constexpr u32 kAlignment = 16;

void check_size(u32 bytes) {
    if (bytes % kAlignment)
        throw Fault("misaligned", format("a bulk copy of %u bytes: the size is a multiple of 16", bytes));
}

void check_alignment(u64 address, const char* what) {
    if (address % kAlignment)
        throw Fault("misaligned",
                    format("%s at global 0x%llx: it is aligned to 16 bytes", what, (unsigned long long)address));
}

Allocation& global_operand(Warp& w, u64 address, u32 bytes, const char* what) {
    check_alignment(address, what);
    return resolve_global(w, address, bytes, what);
}

Reduction reduction_of(const Inst& i) { return static_cast<Reduction>(i.mods >> kReduceShift & 0xF); }

// What a copy from global memory leaves out at its ends, which may lie behind those of an allocation (.ignore_oob).
struct Ignored {
    u32 left = 0, right = 0;
    u32 kept(u32 bytes) const { return bytes - std::min(bytes, left + right); }
};

Ignored ignored_of(const i32* o, Warp& w, u32 lane) {
    const Ignored ignored{w.reg<u32>(o[4])[lane], w.reg<u32>(o[5])[lane]};
    if (std::max(ignored.left, ignored.right) >= kAlignment)
        throw Fault("bulk-copy-ignored",
                    format("a bulk copy that ignores %u bytes on its left and %u on its right; 0 to "
                           "15 are allowed",
                           ignored.left, ignored.right));
    return ignored;
}

void load_into(Warp& w, Cta& to, u32 offset, const TxSource& source, u64 address, u32 bytes, Ignored ignored = {}) {
    Machine& m = machine_of(w);
    const u32 pc = static_cast<u32>(w.pc());
    touch_shared(to, w, offset, bytes, Accessor{source.agent, source.clock(), pc, true}, true);
    m.stats.bulk_loads += 1;
    m.stats.bulk_load_bytes += bytes;
    start_async(w, false, 500 + bytes / 64, [&m, &to, offset, address, bytes, ignored, source, pc] {
        u8* const at = to.shared.data() + offset;
        if (ignored.left || ignored.right) std::memset(at, kPoison, bytes);  // what is left out is indeterminate
        const u32 kept = ignored.kept(bytes);
        if (const Allocation* a = kept ? m.global.find(address + ignored.left, kept) : nullptr)
            std::memcpy(at + ignored.left, a->data.get() + (address + ignored.left - a->base), kept);
        end_tx(source, bytes, static_cast<i32>(pc));
    });
}

// Operands: shared destination, global source, size, mbarrier, [CTA mask, or how many bytes to ignore at either end].
Flow load_bulk(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    Cluster& cluster = *w.cta->cluster;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const u64 address = w.reg<u64>(o[1])[l];
        const u32 bytes = w.reg<u32>(o[2])[l];
        check_size(bytes);
        const SharedRef to = resolve_bulk_shared(w, w.reg<u32>(o[0])[l], bytes, kAlignment, "bulk copy");
        const SharedRef at = resolve_shared(w, w.reg<u32>(o[3])[l], 8, "bulk copy's mbarrier");
        const Ignored ignored = i.n_src > 5 ? ignored_of(o, w, l) : Ignored{};
        check_alignment(address, "bulk copy");
        if (!bytes) continue;  // no copy that a phase of the mbarrier would wait for
        const auto read_by = [&](AgentId agent, u32 clock) {
            const u32 kept = ignored.kept(bytes);
            if (!kept) return;
            const u64 first = address + ignored.left;
            touch_global(resolve_global(w, first, kept, "bulk copy"), w, first, kept,
                         Accessor{agent, clock, static_cast<u32>(w.pc()), false}, true);
        };
        if (!(i.mods & kBulkMulticast)) {
            check_signal(to.cta->rank, at.cta->rank, false);
            const TxSource source = begin_tx(w, at.cta->shared_address(at.offset), "bulk copy");
            read_by(source.agent, source.clock());
            load_into(w, *to.cta, to.offset, source, address, bytes, ignored);
            continue;
        }
        // One read for all ranks, which is over once the bytes have come to any of them: it is taken for the issuer's.
        read_by(w.clocks.self, w.clocks.epoch());
        for (u32 rank : multicast_ranks(w, w.reg<u16>(o[4])[l])) {
            const u32 signal = cluster.ctas[rank]->shared_address(at.offset);
            load_into(w, *cluster.ctas[rank], to.offset, begin_tx(w, signal, "bulk copy"), address, bytes);
        }
    }
    return Flow::next;
}

// From this CTA's shared memory to another's. Operands: destination, source, size, mbarrier.
Flow send(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const u32 pc = static_cast<u32>(w.pc());
    const Reduction reduction = reduction_of(i);
    const Ty type = static_cast<Ty>(i.type);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const u32 bytes = w.reg<u32>(o[2])[l];
        check_size(bytes);
        const SharedRef to = resolve_bulk_shared(w, w.reg<u32>(o[0])[l], bytes, kAlignment, "bulk copy");
        const SharedRef from = resolve_bulk_shared(w, w.reg<u32>(o[1])[l], bytes, kAlignment, "bulk copy's source");
        if (from.cta != w.cta) throw Fault("shared-out-of-bounds", "a bulk copy from another CTA's memory");
        const SharedRef at = resolve_shared(w, w.reg<u32>(o[3])[l], 8, "bulk copy's mbarrier");
        check_signal(to.cta->rank, at.cta->rank, false);
        if (!bytes) continue;
        const TxSource source = begin_tx(w, at.cta->shared_address(at.offset), "bulk copy");
        touch_shared(*from.cta, w, from.offset, bytes, Accessor{source.agent, source.clock(), pc, false}, true);
        touch_shared(*to.cta, w, to.offset, bytes,
                     Accessor{source.agent, source.clock(), pc, true, reduction != Reduction::none}, true);
        start_async(w, false, 300 + bytes / 64, [to, from, bytes, source, pc, reduction, type] {
            u8* d = to.cta->shared.data() + to.offset;
            const u8* s = from.cta->shared.data() + from.offset;
            if (reduction == Reduction::none)
                std::memmove(d, s, bytes);
            else
                reduce_bytes(reduction, type, d, s, bytes);
            end_tx(source, bytes, static_cast<i32>(pc));
        });
    }
    return Flow::next;
}

// Of every 16 bytes, those whose bit is set in a .cp_mask. The runs of a range that starts at a multiple of 16.
std::vector<Range> masked_runs(u64 start, u32 bytes, u32 byte_mask) {
    std::vector<Range> runs;
    for (u32 n = 0; n < bytes; ++n) {
        if (!(byte_mask >> n % kAlignment & 1)) continue;
        if (!runs.empty() && runs.back().start + runs.back().bytes == start + n)
            runs.back().bytes += 1;
        else
            runs.push_back({start + n, 1});
    }
    return runs;
}

// To global memory. Operands: destination, source, size, [mask of bytes].
Flow store_bulk(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    Machine& m = machine_of(w);
    const u32 pc = static_cast<u32>(w.pc());
    const Reduction reduction = reduction_of(i);
    const Ty type = static_cast<Ty>(i.type);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const u64 address = w.reg<u64>(o[0])[l];
        const u32 bytes = w.reg<u32>(o[2])[l];
        check_size(bytes);
        const SharedRef from = resolve_bulk_shared(w, w.reg<u32>(o[1])[l], bytes, kAlignment, "bulk store");
        if (from.cta != w.cta) throw Fault("shared-out-of-bounds", "a bulk store from another CTA's memory");
        check_alignment(address, "bulk store");
        const std::vector<Range> written =
            i.n_src > 3 ? masked_runs(address, bytes, w.reg<u16>(o[3])[l]) : std::vector<Range>{{address, bytes}};
        // What a mask leaves out may lie outside the allocation.
        const u64 first = written.empty() ? address : written.front().start;
        const u32 span = written.empty() ? 0 : static_cast<u32>(written.back().start - first) + written.back().bytes;
        Allocation* const target = span ? &resolve_global(w, first, span, "bulk store") : nullptr;
        const BulkLane& bulk = bulk_lane(w, l);
        const u32 clock = bulk.committed + 1;
        if (!is_among_many_repeats(w, i, mask, l))
            for (const Range& r : written)
                touch_shared(*w.cta, w, from.offset + static_cast<u32>(r.start - address), r.bytes,
                             Accessor{bulk.reads, clock, pc, false}, true);
        Accessor writer{bulk.writes, clock, pc, true, reduction != Reduction::none};
        writer.repeats = reduction == Reduction::none && repeats_store(w, i, mask, l);
        if (target && (!writer.repeats || !is_between_repeats(w, i, mask, l)))
            touch_global(*target, w, written, writer, true);
        m.stats.bulk_stores += 1;
        m.stats.bulk_store_bytes += bytes;
        auto data = std::make_shared<std::vector<u8>>();
        Cta& cta = *w.cta;
        start_bulk_store(
            w, l, 500 + bytes / 64,
            [&cta, data, bytes, at = from.offset] {
                data->assign(cta.shared.begin() + at, cta.shared.begin() + at + bytes);
            },
            [&m, data, address, bytes, written, first, span, reduction, type] {
                Allocation* to = span ? m.global.find(first, span) : nullptr;
                if (!to) return;
                u8* d = to->data.get() + (first - to->base);
                if (reduction != Reduction::none) {
                    const auto reduce = [=](u8* at) { reduce_bytes(reduction, type, at, data->data(), bytes); };
                    if (m.overlap.in_tail()) m.overlap.note(first, bytes, reduce);
                    return reduce(d);
                }
                for (const Range& r : written)
                    std::memcpy(d + (r.start - first), data->data() + (r.start - address), r.bytes);
            });
    }
    return Flow::next;
}

// Changes no state; the range has to exist. Operands: address, size.
Flow prefetch_bulk(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        check_size(w.reg<u32>(o[1])[l]);
        global_operand(w, w.reg<u64>(o[0])[l], w.reg<u32>(o[1])[l], "bulk prefetch");
    }
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_bulk(X)      \
    X(bulk_load, copy, bulk)  \
    X(bulk_send, copy, bulk)  \
    X(bulk_store, copy, bulk) \
    X(bulk_prefetch, copy, bulk)
// clang-format on

Handler bind_bulk(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::bulk_load: return load_bulk;
        case Op::bulk_send: return send;
        case Op::bulk_store: return store_bulk;
        case Op::bulk_prefetch: return prefetch_bulk;
        default: return nullptr;
    }
}

}  // namespace ptxm
