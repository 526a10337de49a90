// cp.async.bulk.tensor from global to shared memory: tiled boxes, out-of-bounds fill, swizzles, tx-count completion.
#include "tensormap.hpp"

#include "handlers.hpp"
#include "lanes.hpp"

namespace ptxm {

TensorMap decode_tensor_map(const u8* b) {
    u32 magic;
    std::memcpy(&magic, b, 4);
    if (magic != 0x50414D54u) throw Fault("tensor-map", "the descriptor address does not hold a tensor map");
    TensorMap t;
    t.dtype = b[4];
    t.rank = b[5];
    t.interleave = b[6];
    t.swizzle = static_cast<Swizzle>(b[7]);
    t.oob = b[9];
    t.element_bits = b[10];
    std::memcpy(&t.address, b + 16, 8);
    t.stride[0] = t.element_bytes();
    for (u32 d = 0; d < t.rank; ++d) {
        u32 dim;
        u16 box;
        std::memcpy(&dim, b + 24 + 4 * d, 4);
        std::memcpy(&box, b + 80 + 2 * d, 2);
        t.global_dim[d] = u64{dim} + 1;
        t.box[d] = box;
        t.element_stride[d] = b[90 + d];
        if (d) std::memcpy(&t.stride[d], b + 48 + 8 * (d - 1), 8);
    }
    if (t.element_bits % 8) throw Fault("tensor-map", "sub-byte tensor maps are not modelled");
    if (t.interleave) throw Fault("tensor-map", "interleaved tensor maps are not modelled");
    if (t.swizzle > Swizzle::b128) throw Fault("tensor-map", "128-byte swizzles with other atoms are not modelled");
    if (t.oob) throw Fault("tensor-map", "NaN fill of out-of-bounds elements is not modelled");
    return t;
}

namespace {

struct Box {
    TensorMap map;
    i32 start[5] = {};
};

// Calls f(element offset in the box, global address, elements) for every inner row that lies in bounds, clipped.
template <class F>
void each_row(const Box& box, F f) {
    const TensorMap& m = box.map;
    u32 index[5] = {};
    const i64 x0 = box.start[0];
    const i64 first = std::max<i64>(0, -x0), last = std::min<i64>(m.box[0], static_cast<i64>(m.global_dim[0]) - x0);
    u32 row = 0;
    for (;;) {
        u64 address = m.address;
        bool inside = first < last;
        for (u32 d = 1; d < m.rank; ++d) {
            const i64 c = box.start[d] + static_cast<i64>(index[d]);
            inside = inside && c >= 0 && c < static_cast<i64>(m.global_dim[d]);
            if (inside) address += static_cast<u64>(c) * m.stride[d];
        }
        if (inside)
            f(row * m.box[0] + static_cast<u32>(first), address + static_cast<u64>(x0 + first) * m.element_bytes(),
              static_cast<u32>(last - first));
        ++row;
        u32 d = 1;
        while (d < m.rank && ++index[d] == m.box[d]) index[d++] = 0;
        if (d >= m.rank) return;
    }
}

void copy_to_shared(GlobalMemory& memory, const Box& box, Cta& cta, u32 offset) {
    const u32 bytes = box.map.box_bytes(), element = box.map.element_bytes();
    std::vector<u8> linear(bytes, 0);
    each_row(box, [&](u32 at, u64 address, u32 elements) {
        const Allocation* a = memory.find(address, u64{elements} * element);
        if (a) std::memcpy(linear.data() + at * element, a->data.get() + (address - a->base), elements * element);
    });
    // Swizzles move 16-byte chunks; a box without one is a plain copy.
    if (box.map.swizzle == Swizzle::none) {
        std::memcpy(cta.shared.data() + offset, linear.data(), bytes);
        return;
    }
    for (u32 n = 0; n < bytes; n += 16)
        std::memcpy(cta.shared.data() + swizzled(box.map.swizzle, offset + n), linear.data() + n,
                    std::min(16u, bytes - n));
}

const u8* tensor_map_bytes(Warp& w, u64 address) {
    if (address % 64)
        throw Fault("misaligned", format("tensor map at 0x%llx is not 64-byte aligned", (unsigned long long)address));
    if ((address & kWindowMask) == kParamWindow) return resolve_param(w, address & ~kWindowMask, 128);
    Allocation& a = resolve_global(w, address, 128, "tensor map");
    return a.data.get() + (address - a.base);
}

u32 shared_operand(Warp& w, i32 unit, u32 lane) { return w.reg<u32>(unit)[lane]; }

void check_map_reads(Warp& w, const Box& box, u32 pc) {
    const u32 element = box.map.element_bytes();
    each_row(box, [&](u32, u64 address, u32 elements) {
        Allocation& a = resolve_global(w, address, u64{elements} * element, "bulk tensor copy");
        // Ordered by its issue: the copy itself is awaited through shared memory, where conflicts are seen.
        touch_global(a, w, address, elements * element, Accessor{w.clocks.self, w.clocks.epoch(), pc, false}, true);
    });
}

// Operands: destination, map, coordinates x rank, mbarrier.
Flow load(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const u32 dims = i.mods >> kTmaDimShift & 7;
    Cluster& cluster = *w.cta->cluster;
    Machine& m = *cluster.machine;
    const u32 pc = static_cast<u32>(w.pc());
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        Box box;
        box.map = decode_tensor_map(tensor_map_bytes(w, w.reg<u64>(o[1])[l]));
        if (box.map.rank != dims)
            throw Fault("tensor-map", format("a %uD copy through a tensor map of rank %u", dims, box.map.rank));
        for (u32 d = 0; d < dims; ++d) box.start[d] = w.reg<i32>(o[2 + d])[l];
        const u32 bytes = box.map.box_bytes();
        const u32 alignment = 128;
        const SharedRef to = resolve_shared(w, shared_operand(w, o[0], l), bytes, "bulk tensor copy");
        if (to.offset % alignment)
            throw Fault("misaligned", format("bulk tensor copy to shared 0x%x: the destination is aligned to %u bytes",
                                             to.offset, alignment));
        const SharedRef at = resolve_shared(w, shared_operand(w, o[2 + dims], l), 8, "bulk tensor copy's mbarrier");
        Mbarrier& bar = mbarrier_at(w, at.cta->shared_address(at.offset), "bulk tensor copy");
        check_mbarrier_visible(w, bar, true);
        if (!bar.has_agent) {
            bar.has_agent = true;
            bar.agent = cluster.new_agent({AgentKind::bulk_load, static_cast<u16>(at.cta->rank), 0, at.offset});
        }
        const u32 phase = bar.phase;
        bar.in_flight += 1;
        if (m.checks) check_map_reads(w, box, pc);
        touch_shared(*to.cta, w, to.offset, bytes, Accessor{bar.agent, phase + 1, pc, true}, true);
        m.stats.bulk_loads += 1;
        m.stats.bulk_load_bytes += bytes;
        start_async(w, false, 500 + bytes / 64, [&m, box, to, at, bytes, phase, pc] {
            copy_to_shared(m.global, box, *to.cta, to.offset);
            auto it = at.cta->mbarriers.find(at.offset);
            if (it == at.cta->mbarriers.end())
                throw Fault(
                    "mbarrier-uninitialised",
                    format("a bulk copy completes on shared 0x%x, where the mbarrier has been invalidated", at.offset));
            mbarrier_complete_tx(*at.cta, at.offset, it->second, bytes, phase, static_cast<i32>(pc));
        });
    }
    return Flow::next;
}

}  // namespace

Handler bind_tma(const InstRecord& r) { return static_cast<Op>(r.op) == Op::tma_load ? load : nullptr; }

}  // namespace ptxm
