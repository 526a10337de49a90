// cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory: clipped boxes and scattered rows,
// completed through bulk groups.
#include "isa/handlers.hpp"
#include "machine/addresses.hpp"
#include "machine/machine.hpp"
#include "memory/tensor_map/tensor_map.hpp"
#include "ptx/copies/bulk.hpp"
#include "ptx/copies/bulk_group.hpp"

namespace ptxm {
namespace {

// Operands: map, source, coordinates.
Flow store_tensor(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    Machine& m = machine_of(w);
    const u32 dims = i.mods >> kTmaDimShift & 7, pc = static_cast<u32>(w.pc());
    const bool rows4 = i.mods & kTmaGather4;
    const Reduction reduction = static_cast<Reduction>(i.mods >> kReduceShift & 0xF);
    std::shared_ptr<SharedStore> same;  // of the lane before
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const Box box = read_box(w, w.reg<u64>(o[0])[l], o + 2, l, i.mods);
        if (box.map.swizzle == Swizzle::b128_atom32_flip8)
            throw Fault("tensor-map", "a store through a map with the 8-byte flip, which only loads take");
        if (box.map.padding)
            throw Fault("tensor-map", box.map.dtype == d16u6_align16
                                          ? "stores of .b6p2x16, which drop two bits of each byte, are not modelled"
                                          : "a store through a map of .b4x16_p64, which only loads take");
        for (u32 d = 0; d < (rows4 ? 0 : dims); ++d)
            if (box.start[d] < 0)
                throw Fault("tensor-coordinate",
                            format("a store at the negative coordinate %d in dimension %u of %u, the innermost being "
                                   "0: only loads take one",
                                   box.start[d], d, dims));
        if (std::any_of(box.map.first_pixel, std::end(box.map.first_pixel), [](i64 c) { return c < 0; }))
            throw Fault("tensor-coordinate",
                        "a store through a map whose bounding box begins at a negative place, which only loads take");
        if (reduction != Reduction::none) reduced_type(box.map, reduction);
        const u32 bytes = box.bytes();
        const SharedRef from =
            resolve_bulk_shared(w, w.reg<u32>(o[1])[l], box.shared_bytes(), 128, "bulk tensor store");
        if (from.cta != w.cta) throw Fault("shared-out-of-bounds", "a bulk tensor store from another CTA's memory");
        const BulkLane& bulk = bulk_lane(w, l);
        const u32 clock = bulk.committed + 1;
        if (!is_among_many_repeats(w, i, mask, l))
            touch_stored(*w.cta, w, box, from.offset, Accessor{bulk.reads, clock, pc, false});
        Accessor writer{bulk.writes, clock, pc, true, reduction != Reduction::none};
        writer.repeats = reduction == Reduction::none && repeats_store(w, i, mask, l);
        if (!writer.repeats || !is_between_repeats(w, i, mask, l)) touch_box(w, box, writer);
        m.stats.bulk_stores += 1;
        m.stats.bulk_store_bytes += bytes;
        Cta& cta = *w.cta;
        if (!same || !repeats_last_store(w, i, mask, l)) same = std::make_shared<SharedStore>(*cta.cluster);
        auto data = std::make_shared<SharedStore::Bytes>();
        start_bulk_store(
            w, l, 500 + bytes / 64,
            [&cta, box, same, data, at = from.offset] {
                *data = same->read([&] { return collect_box(box, cta, at); });
            },
            [&m, box, same, data, reduction] {
                Overlap* const tail = m.overlap.in_tail() ? &m.overlap : nullptr;
                const auto store = [&] { store_box(m.global, box, **data, reduction, tail); };
                if (reduction == Reduction::none)
                    same->write(*data, store);
                else
                    store();
            });
    }
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_tma_store(X) \
    X(tma_store, copy, tma_store)
// clang-format on

Handler bind_tma_store(const InstRecord& r) { return static_cast<Op>(r.op) == Op::tma_store ? store_tensor : nullptr; }

}  // namespace ptxm
