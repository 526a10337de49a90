// ldmatrix, stmatrix, movmatrix (PTX ISA 9.7.14.5.15 to 9.7.14.5.17).
#include "isa/handlers.hpp"
#include "machine/machine.hpp"
#include "memory/banks.hpp"
#include "order/conflicts/conflicts.hpp"
#include "order/conflicts/lane_races.hpp"
#include "ptx/mma/matrix.hpp"

namespace ptxm {
namespace {

constexpr u32 kRowBytes = 16;

MoveShape move_shape(const Inst& i) { return static_cast<MoveShape>(i.mods >> kMatShapeShift & 3); }
u32 count_of(const Inst& i) { return i.mods >> kMatCountShift & 7; }

u32 first_rows(u32 count) { return count == kLanes ? kFullMask : (1u << count) - 1; }

// Offsets of the rows, one a lane: rows of matrix n are named by the n-th eight (m16n16: sixteen) lanes. Lanes beyond
// them give no address.
void row_offsets(Warp& w, const Inst& i, u32 rows, i32 unit, u32 width, const char* what, u32* out) {
    for (u32 l = 0; l < rows; ++l) {
        const u64 base = width == 64 ? w.reg<u64>(unit)[l] : w.reg<u32>(unit)[l];
        const u64 address = base + static_cast<u64>(i.immediate);
        out[l] =
            own_shared(w, width == 64 ? address : static_cast<u32>(address), i.mods & kMatGeneric, kRowBytes, what);
        if (out[l] % kRowBytes)
            throw Fault("misaligned", format("%s: the row at shared 0x%x (lane %u) is not aligned to %u bytes", what,
                                             out[l], l, kRowBytes));
    }
    u64 at[kLanes] = {};
    std::copy(out, out + rows, at);
    machine_of(w).stats.bank_conflicts += bank_conflicts(at, first_rows(rows), kRowBytes);
}

// `rows`: a bit a row.
void touch_rows(Warp& w, const u32* offsets, u32 rows, bool write, bool repeats) {
    if (!rows) return;
    Pieces pieces;
    for (u32 l = 0; l < kLanes; ++l)
        if (rows >> l & 1) pieces.add(offsets[l], kRowBytes);
    w.clocks.note_access(kAllLanes);
    Accessor who{w.clocks.self, w.clocks.epoch(), static_cast<u32>(w.pc()), write};
    who.repeats = repeats;
    touch_shared(*w.cta, w, pieces.runs(), who, false);
    u64 at[kLanes];
    for (u32 l = 0; l < kLanes; ++l) at[l] = w.cta->shared_address(offsets[l]);
    check_lanes(w, at, rows, kRowBytes, who);
}

// The 16 bytes of a row; packed 6- and 4-bit elements become bytes: 6 bits in the low bits of theirs, 4 bits in bits 2
// to 5 (PTX ISA 9.7.16.5, optional decompression).
void read_row(const u8* from, MoveFormat format, u8* row) {
    if (format == MoveFormat::plain) {
        std::memcpy(row, from, kRowBytes);
        return;
    }
    for (u32 k = 0; k < kRowBytes; ++k) {
        if (format == MoveFormat::b4) {
            row[k] = static_cast<u8>((from[k / 2] >> (4 * (k % 2)) & 0xF) << 2);
        } else {
            const u32 bit = 6 * k;
            const u32 pair = from[bit / 8] | static_cast<u32>(from[bit / 8 + 1]) << 8;
            row[k] = static_cast<u8>(pair >> (bit % 8) & 0x3F);
        }
    }
}

// Which bytes of a matrix make up register r of a lane. Rows are those in shared memory.
struct ByteAt {
    u32 row, byte;
};

// 8 x 8 elements of 16 bits, transposed: two elements of one column. Untransposed, the lanes' words lie in order.
ByteAt byte_m8_transposed(u32 lane, u32 k) { return {lane % 4 * 2 + k / 2, lane / 4 * 2 + k % 2}; }

// stmatrix .m16n8 .b8: the register matrix has 16 rows (columns in memory). The ISA's figure is an accumulator's
// fragment; CuTe's SM100_U8x4_STSM_T gives it as numbers.
ByteAt byte_m16n8(u32 lane, u32 k) { return {lane % 4 * 2 + k % 2, lane / 4 + 8 * (k / 2)}; }

// ldmatrix .m16n16 .trans: a lane receives four rows of two columns, a column a register. The ISA's figure is not in
// its text; CuTe's SM100_U8x8_LDSM_T says as much, which exchanges halves of the registers before its layout holds.
ByteAt byte_m16n16(u32 lane, u32 r, u32 k) { return {lane % 4 * 4 + k, lane / 4 + 8 * r}; }

Flow load(Warp& w, const Inst& i, u32 mask) {
    need_full_warp(mask, "ldmatrix");
    const i32* o = w.ops(i);
    const MoveShape shape = move_shape(i);
    const MoveFormat format = static_cast<MoveFormat>(i.mods >> kMatFormatShift & 3);
    const bool wide = shape == MoveShape::m16n16;
    const u32 matrices = count_of(i), rows = wide ? 16 : 8;
    u32 offsets[kLanes];
    row_offsets(w, i, matrices * rows, o[i.n_dst], i.width_src, "ldmatrix", offsets);
    touch_rows(w, offsets, first_rows(matrices * rows), false, false);
    u8 data[kLanes][kRowBytes];
    for (u32 l = 0; l < matrices * rows; ++l) read_row(w.cta->shared.data() + offsets[l], format, data[l]);
    for (u32 r = 0; r < i.n_dst; ++r) {
        if (o[r] < 0) continue;
        u32* d = w.reg<u32>(o[r]);
        const u32 first = wide ? r / 2 * 16 : r * 8;
        if (!wide && !(i.mods & kMatTrans)) {
            std::memcpy(d, data[first], kLanes * 4);  // lane l has word l % 4 of row l / 4
            continue;
        }
        for (u32 l = 0; l < kLanes; ++l) {
            u8 bytes[4];
            for (u32 k = 0; k < 4; ++k) {
                const ByteAt p = wide ? byte_m16n16(l, r % 2, k) : byte_m8_transposed(l, k);
                bytes[k] = data[first + p.row][p.byte];
            }
            std::memcpy(&d[l], bytes, 4);
        }
    }
    return Flow::next;
}

// Sources: the address, then the registers. width_dst is the address width.
Flow store(Warp& w, const Inst& i, u32 mask) {
    need_full_warp(mask, "stmatrix");
    const i32* o = w.ops(i);
    const bool tall = move_shape(i) == MoveShape::m16n8;
    const u32 matrices = count_of(i);
    u32 offsets[kLanes];
    row_offsets(w, i, matrices * 8, o[0], i.width_dst, "stmatrix", offsets);
    u8 rows[kLanes][kRowBytes];
    for (u32 r = 0; r < matrices; ++r) {
        const u32* s = w.reg<u32>(o[1 + r]);
        if (!tall && !(i.mods & kMatTrans)) {
            std::memcpy(rows[r * 8], s, 8 * kRowBytes);  // row n is in the words of lanes 4 n to 4 n + 3
            continue;
        }
        for (u32 l = 0; l < kLanes; ++l) {
            u8 bytes[4];
            std::memcpy(bytes, &s[l], 4);
            for (u32 k = 0; k < 4; ++k) {
                const ByteAt p = tall ? byte_m16n8(l, k) : byte_m8_transposed(l, k);
                rows[r * 8 + p.row][p.byte] = bytes[k];
            }
        }
    }
    u8* shared = w.cta->shared.data();
    const u32 all = first_rows(matrices * 8);
    u32 repeating = 0;
    if (machine_of(w).profile == Profile::lenient)
        for (u32 l = 0; l < matrices * 8; ++l)
            repeating |= static_cast<u32>(!std::memcmp(shared + offsets[l], rows[l], kRowBytes)) << l;
    touch_rows(w, offsets, all & ~repeating, true, false);
    touch_rows(w, offsets, repeating, true, true);
    for (u32 l = 0; l < matrices * 8; ++l) std::memcpy(shared + offsets[l], rows[l], kRowBytes);
    return Flow::next;
}

Flow move(Warp& w, const Inst& i, u32 mask) {
    need_full_warp(mask, "movmatrix");
    const i32* o = w.ops(i);
    const u16* a = w.reg<u16>(o[1]);  // element (row, column) at row * 8 + column
    u16 result[2 * kLanes];
    for (u32 row = 0; row < 8; ++row)
        for (u32 column = 0; column < 8; ++column) result[column * 8 + row] = a[row * 8 + column];
    std::memcpy(w.reg<u16>(o[0]), result, sizeof result);
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_matrix_move(X)             \
    X(ldmatrix, shared_memory, matrix_move) \
    X(stmatrix, shared_memory, matrix_move) \
    X(movmatrix, exchange, matrix_move)
// clang-format on

Handler bind_matrix_move(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::ldmatrix: return load;
        case Op::stmatrix: return store;
        case Op::movmatrix: return move;
        default: return nullptr;
    }
}

}  // namespace ptxm
