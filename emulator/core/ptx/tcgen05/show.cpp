// What an observer is shown of an MMA: the chunks that its operands are gathered from, and where its D lies.
#include "ptx/tcgen05/show.hpp"

#include "machine/observer.hpp"
#include "ptx/tcgen05/product/product.hpp"

namespace ptxm::tc {
namespace {

OperandSeen shown(const Cta& cta, const SharedOperand& o, u32 k, u64 descriptor) {
    OperandSeen seen{type_name(o.format),
                     o.rows,
                     k,
                     container_bits(o.format),
                     false,
                     o.mn_major,
                     {},
                     kChunk / container_bytes(o.format),
                     descriptor};
    const Chunks chunks = chunks_of(cta, o);
    const u32 base = static_cast<u32>(chunks.memory - cta.shared.data());
    for (const u32 at : chunks.offsets) seen.chunks.push_back(base + at);
    return seen;
}

OperandSeen shown_a(const Mma& op, u64 descriptor) {
    Cta& cta = *op.ctas[0];
    if (!op.mods.a_tmem) return shown(cta, op.a, op.shape.k, descriptor);
    AChunks found;
    find_a(op, cta, found);
    OperandSeen seen{type_name(op.shape.a),
                     op.path.rows * op.path.banks,
                     op.shape.k,
                     container_bits(op.shape.a),
                     true,
                     false,
                     {},
                     kChunk / container_bytes(op.shape.a),
                     descriptor};
    for (const u32 at : found.chunks.offsets) {
        const u32 word = at / static_cast<u32>(sizeof(u32));
        seen.chunks.push_back(word / Tmem::kPitch << 16 | word % Tmem::kPitch);
    }
    return seen;
}

}  // namespace

const char* type_name(ElementType f) {
    static constexpr const char* kNames[] = {
#define PTXM_NAME(name, format, bits) #name,
        PTXM_ELEMENT_TYPES(PTXM_NAME)
#undef PTXM_NAME
    };
    return kNames[static_cast<u32>(f)];
}

void show_mma(Warp& w, const Inst& i, u32 lane, const Mma& op) {
    Observer* const o = Observer::of(machine_of(w));
    if (!o || !o->wants_operands()) return;
    const i32* units = w.ops(i);
    MmaSeen seen{&w,
                 w.pc(),
                 kind_name(op.shape.kind),
                 w.reg<u32>(units[3])[lane],
                 op.shape.m,
                 op.shape.n,
                 op.shape.k,
                 op.mods.ws,
                 op.mods.pair,
                 op.accumulate,
                 op.d_column,
                 op.path.banks,
                 {},
                 shown_a(op, op.mods.a_tmem ? w.reg<u32>(units[1])[lane] : w.reg<u64>(units[1])[lane]),
                 shown(*op.ctas[0], op.b, op.shape.k, w.reg<u64>(units[2])[lane])};
    for (u32 bank = 0; bank < op.path.banks; ++bank)
        for (u32 row = 0; row < op.path.rows; ++row) seen.d_lanes.push_back(op.d_lane + op.path.lane_of(row, bank));
    o->multiplies(seen);
}

}  // namespace ptxm::tc
