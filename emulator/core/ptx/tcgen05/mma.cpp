// tcgen05.mma (PTX ISA 9.7.16.10.9). An MMA takes effect when it completes, in issue order within its CTA's tensor
// core; conflicts are checked when it is issued, against what its issuer has synchronised with.
#include "isa/handlers.hpp"
#include "machine/async/async.hpp"
#include "machine/machine.hpp"
#include "machine/observer.hpp"
#include "order/conflicts/tensor_memory_conflicts.hpp"
#include "ptx/tcgen05/allocation.hpp"
#include "ptx/tcgen05/show.hpp"
#include "ptx/tcgen05/tcgen05.hpp"

namespace ptxm {
namespace tc {
namespace {

Modifiers modifiers_of(u32 mods) {
    return {static_cast<Kind>(mods >> kTcKindShift & 7),
            (mods & kTcWs) != 0,
            (mods & kTcPair) != 0,
            (mods & kTcAShift) != 0,
            (mods & kTcATmem) != 0,
            (mods & kTcSparse) != 0,
            mods >> kTcScalesShift & 7};
}

// The lanes of a data path, in runs: half a data path takes 16 of every 32.
template <class F>
void each_lane_run(const Mma& op, F f) {
    if (!op.path.half) return f(0u, op.path.rows * op.path.banks);
    for (u32 r = 0; r < op.path.rows; r += 16) f(op.d_lane + op.path.lane_of(r, 0), 16u);
}

// D's lane: 0, or 16 where only half of the lanes are used (PTX ISA 9.7.16.10.5).
void place_d(Mma& op, u32 address) {
    const TmemAddress d = tmem_address(address);
    if (d.lane != 0 && !(op.path.half && d.lane == 16))
        throw Fault("tmem-address", format("tcgen05.mma: D at lane %u; layout %c starts at lane 0%s", d.lane,
                                           op.path.layout, op.path.half ? " or 16" : ""));
    op.d_lane = d.lane;
    op.d_column = d.column;
}

void place_a(Mma& op, u32 address) {
    const TmemAddress a = tmem_address(address);
    if (a.lane != op.d_lane)
        throw Fault(
            "tmem-address",
            format("tcgen05.mma: A at lane %u and D at lane %u; both have the same lane alignment", a.lane, op.d_lane));
    op.a_column = a.column;
}

// CuTe passes the scale factor id, which the instruction descriptor holds, in the top two bits as well.
u32 place_scale(u32 address, const char* which) {
    const TmemAddress s = tmem_address(address & 0x3FFFFFFF);
    if (s.lane)
        throw Fault("tmem-address", format("tcgen05.mma: %s at lane %u; scales start at lane 0", which, s.lane));
    return s.column;
}

struct Access {
    Warp& w;
    Accessor reads, writes;
};

void check_scales(Access& x, const Mma& op, Cta& cta) {
    const auto check = [&](const Columns& c, const char* what) {
        require_allocated(x.w, cta, c.first, c.count, what);
        touch_tmem(cta, x.w, 0, kTmemLanes, c.first, c.count, x.reads, what);
    };
    check(op.scale_a_columns(), "tcgen05.mma (scales of A)");
    check(op.scale_b_columns(), "tcgen05.mma (scales of B)");
}

void check_metadata(Access& x, const Mma& op, Cta& cta) {
    const Columns c = op.metadata_columns();
    require_allocated(x.w, cta, c.first, c.count, "tcgen05.mma (sparsity metadata)");
    touch_tmem(cta, x.w, 0, op.path.rows * op.path.banks, c.first, c.count, x.reads, "tcgen05.mma (sparsity metadata)");
}

void check_cta(Access& x, const Mma& op, Cta& cta) {
    const Columns d = op.d_columns();
    require_allocated(x.w, cta, d.first, d.count, "tcgen05.mma (D)");
    if (op.mods.a_tmem) {
        require_allocated(x.w, cta, op.a_column, kRowColumns, "tcgen05.mma (operand A)");
        each_lane_run(op, [&](u32 lane, u32 lanes) {
            touch_tmem(cta, x.w, lane, lanes, op.a_column, kRowColumns, x.reads, "tcgen05.mma (operand A)");
        });
    } else {
        check_shared(x.w, cta, op.a, x.reads, "tcgen05.mma reads operand A");
    }
    check_shared(x.w, cta, op.b, x.reads, "tcgen05.mma reads operand B");
    if (op.mods.sparse) {
        check_shared(x.w, cta, op.b_second, x.reads, "tcgen05.mma reads operand B");
        check_metadata(x, op, cta);
    }
    if (op.mods.scales) check_scales(x, op, cta);
    each_lane_run(op, [&](u32 lane, u32 lanes) {
        if (op.accumulate) {
            if (update_tmem_quietly(cta, x.w, lane, lanes, d.first, d.count, x.writes)) return;
            touch_tmem(cta, x.w, lane, lanes, d.first, d.count, x.reads, "tcgen05.mma (accumulator)");
        }
        touch_tmem(cta, x.w, lane, lanes, d.first, d.count, x.writes, "tcgen05.mma (D)");
    });
}

SharedOperand shared_operand(u64 descriptor, ElementType f, Kind kind, bool mn_major, u32 first, u32 rows,
                             const char* which) {
    const SharedOperand o{decode_matrix(descriptor, which), f, mn_major, first, rows};
    check_layout(o.descriptor, f, kind, mn_major, which);
    return o;
}

// The other half of K, of a B whose rows have 64 bytes because A is sparse.
SharedOperand second_half(SharedOperand o) {
    MatrixDescriptor& d = o.descriptor;
    const bool plain = d.swizzle == Swizzle::none;
    if (!o.mn_major) {
        if (d.swizzle == Swizzle::b32)
            throw Fault("matrix-descriptor",
                        "B of a sparse tcgen05.mma has 64 bytes a row: a 32-byte swizzle is not "
                        "modelled");
        d.start += kRowBytes / kChunk * (plain ? d.leading : kChunk);
    } else {
        const u32 depth = kRowBytes / container_bytes(o.format), group = d.swizzle == Swizzle::b128_atom32 ? 4 : 8;
        d.start += depth / group * (plain ? d.leading : d.stride);
    }
    d.start &= kAddressMask;
    return o;
}

// Metadata that a selector chooses from starts at an even column.
void place_metadata(Mma& op, u32 address) {
    const TmemAddress at = tmem_address(address);
    const bool chosen = metadata_width(op.shape.kind) == 1;
    if (at.lane || (chosen && at.column % 2))
        throw Fault("tmem-address",
                    format("tcgen05.mma: sparsity metadata at lane %u, column %u; it starts at lane 0%s", at.lane,
                           at.column, chosen ? " of an even column" : ""));
    op.metadata = at.column + op.shape.selector;
}

// Operands: D, A (descriptor or address), B's descriptor, instruction descriptor, enable-input-d; then as the modifiers
// say the metadata of A, scale A and scale B, the words of disable-output-lane, the zero-column mask.
Mma decode(Warp& w, const Inst& i, u32 lane) {
    const i32* o = w.ops(i);
    Mma op;
    op.sums = machine_of(w).mma_sums;
    op.mods = modifiers_of(i.mods);
    op.shape = decode_instruction(w.reg<u32>(o[3])[lane], op.mods);
    op.path = data_path(op.mods, op.shape.m);
    op.ctas = ctas_of(w, op.mods.pair, "tcgen05.mma");
    op.accumulate = w.pred(o[4]) >> lane & 1;
    op.input_scale = i.mods >> kTcInputScaleShift & 0xF;
    i32 next = 5;
    if (op.mods.sparse) place_metadata(op, w.reg<u32>(o[next++])[lane]);
    if (op.mods.scales) {
        op.scale_a = place_scale(w.reg<u32>(o[next++])[lane], "the scales of A");
        op.scale_b = place_scale(w.reg<u32>(o[next++])[lane], "the scales of B");
    }
    if (i.mods & kTcDisable)
        for (u32 k = 0; k < (op.mods.pair ? 8u : 4u); ++k) op.disabled[k] = w.reg<u32>(o[next++])[lane];
    if (i.mods & kTcZeroMask) {
        op.has_mask = true;
        op.mask = decode_column_mask(w.reg<u64>(o[next++])[lane], op.shape);
    }
    place_d(op, w.reg<u32>(o[0])[lane]);
    if (op.mods.a_tmem)
        place_a(op, w.reg<u32>(o[1])[lane]);
    else
        op.a = shared_operand(w.reg<u64>(o[1])[lane], op.shape.a, op.shape.kind, op.shape.a_mn_major, 0, op.path.rows,
                              "A");
    op.b = shared_operand(w.reg<u64>(o[2])[lane], op.shape.b, op.shape.kind, op.shape.b_mn_major, op.mask.shift,
                          op.shape.n / (op.mods.pair ? 2 : 1), "B");
    if (op.mods.sparse) op.b_second = second_half(op.b);
    return op;
}

Flow mma(Warp& w, const Inst& i, u32 mask) {
    const u32 lane = issuing_lane(mask, "tcgen05.mma");
    const Mma op = decode(w, i, lane);
    if (op.shape.k_bit)  // as cuDNN's attention of head_dim 256 does
        machine_of(w).report_strict(&w, "instruction-descriptor", "bit 29, which is reserved, is set", w.pc());
    Access x{w, {w.clocks.tensor, w.clocks.issue_mma(lane), static_cast<u32>(w.pc()), false}, {}};
    x.writes = x.reads;
    x.writes.write = true;
    for (Cta* cta : op.ctas)
        if (cta) check_cta(x, op, *cta);
    check_order(w, op, x.reads);
    machine_of(w).stats.mma += 1;
    if (Observer::of(machine_of(w))) show_mma(w, i, lane, op);
    start_async(w, true, op.shape.n / 2, [op] { execute(op); });
    return Flow::next;
}

}  // namespace
}  // namespace tc

// clang-format off
#define PTXM_OPS_tensor(X) \
    X(tc_mma, matrix, tensor)
// clang-format on

Handler bind_tensor(const InstRecord& r) { return static_cast<Op>(r.op) == Op::tc_mma ? tc::mma : nullptr; }

}  // namespace ptxm
