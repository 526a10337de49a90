// tcgen05.cp and tcgen05.shift (PTX ISA 9.7.16.9): in the tensor core's stream, like the MMAs that follow them.
#include "isa/handlers.hpp"
#include "machine/async/async.hpp"
#include "machine/cluster/cluster.hpp"
#include "order/conflicts/tensor_memory_conflicts.hpp"
#include "ptx/tcgen05/allocation.hpp"
#include "ptx/tcgen05/tcgen05.hpp"

namespace ptxm {
namespace tc {
namespace {

enum class Unpack : u8 { none, b6x16_p32, b4x16_p64 };

// Rows of one copy, 16-byte chunks a row, and where row r goes: lane_of(r), and again every `repeat` lanes.
struct Shape {
    u32 rows, chunks, copies, repeat;
    u32 lane_of(CopyShape shape, u32 r) const {
        switch (shape) {
            case CopyShape::s4x256b: return 32 * r;  // one row a warp's partition
            case CopyShape::s64x128b_01_23: return r / 32 * 64 + r % 32;
            default: return r;
        }
    }
};

constexpr Shape kShapes[] = {{128, 2, 1, 0}, {4, 2, 1, 0},   {128, 1, 1, 0},
                             {64, 1, 2, 64}, {64, 1, 2, 32}, {32, 1, 4, 32}};

struct Copy {
    CopyShape name;
    Shape shape;
    Unpack unpack;
    MatrixDescriptor source;
    TmemAddress to;
};

void copy(Cta& cta, const Copy& c) {
    cta.tmem.settle(c.to.column, c.shape.chunks * 4);
    for (u32 r = 0; r < c.shape.rows; ++r) {
        u8 row[kRowBytes];
        for (u32 k = 0; k < c.shape.chunks; ++k) {
            const u8* from = cta.shared.data() + k_major_chunk(c.source, r, k);
            u8* out = row + k * kChunk;
            if (c.unpack == Unpack::b6x16_p32)
                unpack_b6x16_p32(from, out);
            else if (c.unpack == Unpack::b4x16_p64)
                unpack_b4x16_p64(from, out);
            else
                std::memcpy(out, from, kChunk);
        }
        for (u32 n = 0; n < c.shape.copies; ++n)
            std::memcpy(cta.tmem.row(c.to.lane + c.shape.lane_of(c.name, r) + n * c.shape.repeat) + c.to.column, row,
                        c.shape.chunks * kChunk);
    }
}

void check_copy(Warp& w, Cta& cta, const Copy& c, const Accessor& reads) {
    const u32 columns = c.shape.chunks * 4;
    require_allocated(w, cta, c.to.column, columns, "tcgen05.cp");
    check_copy_order(w, cta, {c.to.column, columns}, reads);
    std::vector<u32> chunks;
    for (u32 r = 0; r < c.shape.rows; ++r)
        for (u32 k = 0; k < c.shape.chunks; ++k) chunks.push_back(k_major_chunk(c.source, r, k));
    check_chunks(w, cta, std::move(chunks), reads, "tcgen05.cp reads");
    Accessor writes = reads;
    writes.write = true;
    if (c.name == CopyShape::s4x256b) {
        for (u32 r = 0; r < 4; ++r)
            touch_tmem(cta, w, c.to.lane + 32 * r, 1, c.to.column, columns, writes, "tcgen05.cp");
    } else {
        touch_tmem(cta, w, 0, kTmemLanes, c.to.column, columns, writes, "tcgen05.cp");
    }
}

// Operands: address, source descriptor.
Flow cp(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    const u32 lane = issuing_lane(mask, "tcgen05.cp");
    Copy c;
    c.name = static_cast<CopyShape>(i.mods >> kTcShapeShift & 0xF);
    c.shape = kShapes[static_cast<u32>(c.name)];
    c.unpack = static_cast<Unpack>(i.mods >> kTcUnpackShift & 3);
    c.source = decode_matrix(w.reg<u64>(o[1])[lane], "the source of tcgen05.cp");
    if (c.source.swizzle == Swizzle::b128_atom32)
        throw Fault("matrix-descriptor",
                    "tcgen05.cp reads K-major rows, for which a 128-byte swizzle of 32-byte atoms "
                    "has no layout (PTX ISA 9.7.16.10.6)");
    c.to = tmem_address(w.reg<u32>(o[0])[lane]);
    if (c.to.lane >= (c.name == CopyShape::s4x256b ? 32u : 1u))
        throw Fault("tmem-address", format("tcgen05.cp to lane %u; this shape starts at lane 0", c.to.lane));
    const auto ctas = ctas_of(w, i.mods & kTcPair, "tcgen05.cp");
    const Accessor reads{w.clocks.tensor, w.clocks.issue_mma(lane), static_cast<u32>(w.pc()), false};
    for (Cta* cta : ctas)
        if (cta) check_copy(w, *cta, c, reads);
    start_async(w, true, c.shape.rows / 4, [ctas, c] {
        for (Cta* cta : ctas)
            if (cta) copy(*cta, c);
    });
    return Flow::next;
}

// Row r of the 32 that start at `lane` takes the 32 bytes of row r + 1; the last keeps its own. The ISA's figure is not
// in its text: this is the direction in which tcgen05.cp.4x256b, which it is pipelined with, supplies the missing row.
void shift_down(Tmem& t, TmemAddress at) {
    t.settle(at.column, kRowColumns);
    for (u32 r = 0; r < 31; ++r)
        std::memcpy(t.row(at.lane + r) + at.column, t.row(at.lane + r + 1) + at.column, kRowBytes);
}

Flow shift(Warp& w, const Inst& i, u32 mask) {
    const u32 lane = issuing_lane(mask, "tcgen05.shift");
    const TmemAddress at = tmem_address(w.reg<u32>(w.ops(i)[0])[lane]);
    if (at.lane % 32 || at.lane >= kTmemLanes)
        throw Fault("tmem-address", format("tcgen05.shift at lane %u; its lane is a multiple of 32", at.lane));
    const auto ctas = ctas_of(w, i.mods & kTcPair, "tcgen05.shift");
    Accessor who{w.clocks.tensor, w.clocks.issue_mma(lane), static_cast<u32>(w.pc()), false};
    for (Cta* cta : ctas) {
        if (!cta) continue;
        require_allocated(w, *cta, at.column, kRowColumns, "tcgen05.shift");
        for (bool write : {false, true}) {
            who.write = write;
            touch_tmem(*cta, w, at.lane, 32, at.column, kRowColumns, who, "tcgen05.shift");
        }
    }
    start_async(w, true, 16, [ctas, at] {
        for (Cta* cta : ctas)
            if (cta) shift_down(cta->tmem, at);
    });
    return Flow::next;
}

}  // namespace
}  // namespace tc

// clang-format off
#define PTXM_OPS_tensor_copy(X)   \
    X(tc_cp, matrix, tensor_copy) \
    X(tc_shift, matrix, tensor_copy)
// clang-format on

Handler bind_tensor_copy(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::tc_cp: return tc::cp;
        case Op::tc_shift: return tc::shift;
        default: return nullptr;
    }
}

}  // namespace ptxm
