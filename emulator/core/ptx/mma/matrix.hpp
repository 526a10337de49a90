// What the warp- and warpgroup-level matrix instructions share: element types, modifiers, fragment layouts.
#pragma once

#include <array>
#include <bit>
#include <type_traits>
#include <utility>

#include "machine/machine.hpp"
#include "numbers/formats.hpp"

namespace ptxm {

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
    kMmaSparse = 1u << 24,
    kMmaSelectorShift = 25,  // which threads of four hold the metadata
    kMmaScalesShift = 27,    // blocks of K with scales of their own: 0, none; n, 2^(n - 1) of them
    kMmaScalesE4m3 = 1u << 29,
    kMmaPacked = 1u << 30,  // elements of four bits, eight a register
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
    {"mma_sparse", kMmaSparse},
    {"mma_selector_shift", kMmaSelectorShift},
    {"mma_scales_shift", kMmaScalesShift},
    {"mma_scales_e4m3", kMmaScalesE4m3},
    {"mma_packed", kMmaPacked},
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

inline bool is_integer(ElementType t) {
    return t == ElementType::s8 || t == ElementType::u8 || t == ElementType::s4 || t == ElementType::u4;
}

template <u32 n>
using Bits = std::integral_constant<u32, n>;

// Calls f(bits of an element, decoder of an element in the low bits of a word). One instance of f a type keeps the
// choice out of its loops.
template <class F>
void with_float(ElementType t, F f) {
    switch (t) {
        case ElementType::f16: return f(Bits<16>{}, [](u32 raw) { return half_to_float(static_cast<u16>(raw)); });
        case ElementType::bf16: return f(Bits<16>{}, [](u32 raw) { return std::bit_cast<float>(raw << 16); });
        // A tf32 operand is a 32-bit container whose 13 low bits are not read.
        case ElementType::tf32: return f(Bits<32>{}, [](u32 raw) { return std::bit_cast<float>(raw & 0xFFFFE000u); });
        default: break;
    }
    if (!is_small_float(t)) throw Fault("internal", "not a floating-point element");
    f(Bits<8>{}, [table = numbers_of_bytes(t).data()](u32 raw) { return table[raw & 0xFF]; });
}

template <class F>
void with_integer(ElementType t, F f) {
    switch (t) {
        case ElementType::s8: return f(Bits<8>{}, [](u32 raw) { return i32{static_cast<std::int8_t>(raw)}; });
        case ElementType::u8: return f(Bits<8>{}, [](u32 raw) { return static_cast<i32>(raw & 0xFF); });
        case ElementType::s4: return f(Bits<4>{}, [](u32 raw) { return static_cast<i32>(raw << 28) >> 28; });
        case ElementType::u4: return f(Bits<4>{}, [](u32 raw) { return static_cast<i32>(raw & 0xF); });
        default: throw Fault("internal", "not an integer element");
    }
}

}  // namespace element

// Matrix instructions need all 32 lanes: the behaviour is undefined if any thread of the warp has exited.
void need_full_warp(u32 mask, const char* what);

// The 32-bit offset in this CTA's shared memory of an address, which may be generic.
u32 own_shared(Warp& w, u64 address, bool generic, u32 size, const char* what);

// Up to 32 pieces of memory, checked for conflicts as the runs they make up.
struct Pieces {
    Range ranges[kLanes];
    u32 count = 0;
    void add(u64 address, u32 bytes) {
        // Insertion keeps them in order; addresses mostly ascend.
        u32 k = count++;
        for (; k > 0 && ranges[k - 1].start > address; --k) ranges[k] = ranges[k - 1];
        ranges[k] = {address, bytes};
    }
    // Merges those that touch or overlap.
    std::span<const Range> runs() {
        u32 n = 0;
        for (u32 k = 1; k < count; ++k) {
            Range& last = ranges[n];
            const u64 end = last.start + last.bytes;
            if (ranges[k].start > end)
                ranges[++n] = ranges[k];
            else
                last.bytes = static_cast<u32>(std::max(end, ranges[k].start + ranges[k].bytes) - last.start);
        }
        count = count ? n + 1 : 0;
        return {ranges, count};
    }
};

}  // namespace ptxm
