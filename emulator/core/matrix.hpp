// What the warp- and warpgroup-level matrix instructions share: element types, modifiers, fragment layouts.
#pragma once

#include <utility>

#include "machine.hpp"

namespace ptxm {

#define PTXM_MATRIX_TYPES(X) \
    X(f16)                   \
    X(bf16) X(tf32) X(f32) X(f64) X(s32) X(e4m3) X(e5m2) X(e3m2) X(e2m3) X(e2m1) X(s8) X(u8) X(s4) X(u4) X(b1)

enum class MatrixType : u8 {
#define PTXM_ENUM(name) name,
    PTXM_MATRIX_TYPES(PTXM_ENUM)
#undef PTXM_ENUM
};

// Fields of Inst::mods.
enum MatrixMods : u32 {
    // ldmatrix, stmatrix
    kMatTrans = 1u << 0,
    kMatGeneric = 1u << 1,
    kMatShapeShift = 4,   // MoveShape
    kMatFormatShift = 6,  // MoveFormat
    kMatCountShift = 8,   // matrices
    // mma, wgmma: types of D, A, B, C
    kMmaDShift = 0,
    kMmaAShift = 4,
    kMmaBShift = 8,
    kMmaCShift = 12,
    kMmaSat = 1u << 16,
    kMmaAnd = 1u << 17,  // b1: and, else xor
    kMmaM8 = 1u << 18,
    kWgmmaARegisters = 1u << 19,
    kWgmmaNegateA = 1u << 20,
    kWgmmaNegateB = 1u << 21,
    kWgmmaTransA = 1u << 22,
    kWgmmaTransB = 1u << 23,
    // cp.async
    kCopySize = 1u << 0,    // a src-size operand
    kCopyIgnore = 1u << 1,  // an ignore-src operand
    kCopyIgnoreNegated = 1u << 2,
    kCopyBytesShift = 8,
    kCopyWideSource = 1u << 16,  // addresses have 64 bits
    kCopyWideDestination = 1u << 17,
    kCopyAll = 1u << 0,    // cp.async.wait_all
    kCopyNoinc = 1u << 0,  // cp.async.mbarrier.arrive.noinc
};

inline constexpr std::pair<const char*, u32> kMatrixModNames[] = {
    {"mat_trans", kMatTrans},
    {"mat_generic", kMatGeneric},
    {"mat_shape_shift", kMatShapeShift},
    {"mat_format_shift", kMatFormatShift},
    {"mat_count_shift", kMatCountShift},
    {"mma_d_shift", kMmaDShift},
    {"mma_a_shift", kMmaAShift},
    {"mma_b_shift", kMmaBShift},
    {"mma_c_shift", kMmaCShift},
    {"mma_sat", kMmaSat},
    {"mma_and", kMmaAnd},
    {"mma_m8", kMmaM8},
    {"wgmma_a_registers", kWgmmaARegisters},
    {"wgmma_negate_a", kWgmmaNegateA},
    {"wgmma_negate_b", kWgmmaNegateB},
    {"wgmma_trans_a", kWgmmaTransA},
    {"wgmma_trans_b", kWgmmaTransB},
    {"copy_size", kCopySize},
    {"copy_ignore", kCopyIgnore},
    {"copy_ignore_negated", kCopyIgnoreNegated},
    {"copy_bytes_shift", kCopyBytesShift},
    {"copy_wide_source", kCopyWideSource},
    {"copy_wide_destination", kCopyWideDestination},
    {"copy_all", kCopyAll},
    {"copy_noinc", kCopyNoinc},
};

enum class MoveShape : u8 { m8n8, m8n16, m16n16, m16n8 };
enum class MoveFormat : u8 { plain, b6, b4 };  // of the elements in shared memory

namespace fragment {

// Fragment layouts of mma (PTX ISA 9.7.14.5) and wgmma.mma_async (9.7.15.5.1.1). The tables of the ISA are instances of
// three rules, with groupID = lane >> 2, threadID_in_group = lane % 4, and registers of `per` elements:
//   A, M x K    row = groupID + 8 * (r % 2) for M = 16 (groupID for M = 8),
//               column = threadID_in_group * per + e + 4 * per * (r / 2)
//   B, K x 8    row = threadID_in_group * per + e + 4 * per * r,  column = groupID
//   C, D, M x N, element i    row = groupID + 8 * (i / 2 % 2),  column = threadID_in_group * 2 + i % 2 + 8 * (i / 4)
// wgmma's warp w holds rows 16 w to 16 w + 15 of A and D in the same way. Columns of m8n8 accumulators are those of
// elements 0 and 1.
struct Position {
    u32 row, column;
};

inline Position a(u32 m, u32 per, u32 lane, u32 r, u32 e) {
    const u32 column = lane % 4 * per + e;
    if (m == 8) return {lane / 4, column + 4 * per * r};
    return {lane / 4 + 8 * (r % 2), column + 4 * per * (r / 2)};
}
inline Position b(u32 per, u32 lane, u32 r, u32 e) { return {lane % 4 * per + e + 4 * per * r, lane / 4}; }
inline Position d(u32 lane, u32 i) { return {lane / 4 + 8 * (i / 2 % 2), lane % 4 * 2 + i % 2 + 8 * (i / 4)}; }

}  // namespace fragment

namespace element {

inline u32 bits(MatrixType t) {
    switch (t) {
        case MatrixType::f16:
        case MatrixType::bf16: return 16;
        case MatrixType::f64: return 64;
        case MatrixType::tf32:
        case MatrixType::f32:
        case MatrixType::s32: return 32;
        case MatrixType::s4:
        case MatrixType::u4: return 4;
        case MatrixType::b1: return 1;
        default: return 8;
    }
}
inline bool is_integer(MatrixType t) {
    return t == MatrixType::s8 || t == MatrixType::u8 || t == MatrixType::s4 || t == MatrixType::u4;
}

float from_half(u16 bits);
u16 to_half(float x);  // nearest even; NaN becomes 0x7FFF
// The value of a floating-point element of up to 32 bits, in the low bits of `raw`.
float decode(MatrixType t, u32 raw);
i32 decode_integer(MatrixType t, u32 raw);

}  // namespace element

// Matrix instructions need all 32 lanes: the behaviour is undefined if any thread of the warp has exited.
void need_full_warp(u32 mask, const char* what);

// The 32-bit offset in this CTA's shared memory of an address that may be generic.
u32 own_shared(Warp& w, u64 address, bool generic, u32 size, const char* what);

// Up to 32 pieces of memory, checked for conflicts as the runs they make up.
struct Pieces {
    u64 at[kLanes];
    u32 size[kLanes];
    u32 count = 0;
    void add(u64 address, u32 bytes) {
        // Insertion keeps them in order; addresses mostly ascend.
        u32 k = count++;
        for (; k > 0 && at[k - 1] > address; --k) {
            at[k] = at[k - 1];
            size[k] = size[k - 1];
        }
        at[k] = address;
        size[k] = bytes;
    }
    template <class Touch>
    void each_run(Touch touch) const {
        for (u32 k = 0; k < count;) {
            const u64 start = at[k];
            u64 end = start + size[k];
            for (++k; k < count && at[k] <= end; ++k) end = std::max(end, at[k] + size[k]);
            touch(start, static_cast<u32>(end - start));
        }
    }
};

}  // namespace ptxm
