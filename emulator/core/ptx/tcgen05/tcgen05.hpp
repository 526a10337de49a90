// What the tcgen05 files share: kinds, descriptors, number formats, data paths.
//
// ptx/tcgen05/operands/descriptor.cpp  shared-memory, instruction and zero-column-mask descriptors
// ptx/tcgen05/operands/format.cpp      number formats and their packing
// ptx/tcgen05/operands/operand.cpp     operands: which bytes, their conflict checks, their gathering
// ptx/tcgen05/operands/operand_rows.cpp        and as numbers
// ptx/tcgen05/operands/operand_packed.cpp      or as bf16, for the host's matrix instructions
// ptx/tcgen05/product/product.cpp     the product over the data path
// ptx/tcgen05/product/chain.cpp       its sums in f32 and f16, of one MMA after another
// ptx/tcgen05/product/fast/vectors.cpp     with vector registers
// ptx/tcgen05/product/fast/tiles.cpp       with the host's matrix instructions
// ptx/tcgen05/product/silicon/silicon.cpp     or its sums as silicon makes them
// ptx/tcgen05/product/silicon/four_bits.cpp   those of kind::mxf4 and mxf4nvf4
// ptx/tcgen05/operands/operand_sparse.cpp      metadata of a sparse A, and the product with it
// ptx/tcgen05/mma.cpp         tcgen05.mma
// ptx/tcgen05/pipelining.cpp       strict: which operations are pipelined with one another
// ptx/tcgen05/tensor_copy.cpp        tcgen05.cp and tcgen05.shift
// ptx/tcgen05/commit.cpp      tcgen05.commit and the fences
#pragma once

#include <bit>
#include <bitset>

#include "machine/machine.hpp"
#include "memory/tensor_map/tensor_map.hpp"
#include "numbers/formats.hpp"

namespace ptxm::tc {

// As the decoder numbers them.
enum class Kind : u8 { f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4 };
enum class Accumulator : u8 { f16, f32, s32 };

// Every MMA reads 32 bytes of K a row, in two 16-byte chunks; in tensor memory that is eight columns.
constexpr u32 kRowBytes = 32, kChunk = 16, kRowColumns = 8, kMaxK = 64, kMaxN = 256, kTmemLanes = 128;
constexpr u32 kMaxScales = 4;

struct Modifiers {  // of one tcgen05.mma
    Kind kind;
    bool ws, pair, a_shift, a_tmem, sparse;
    u32 scales;  // a row: 1, 2 or 4; 0 without block scaling
};

// Instruction descriptor (PTX ISA 9.7.16.4.2).
struct Instruction {
    Kind kind;
    u32 m, n, k;  // k: elements of a row of A, of which a sparse one stores half
    ElementType a, b;
    Accumulator d;
    bool negate_a, negate_b, a_mn_major, b_mn_major, saturate;
    u32 max_shift;
    bool scales_e8m0;
    u32 scale_a_id, scale_b_id;
    u32 selector;  // of a sparse A's metadata
    bool k_bit;    // bit 29, which is reserved: the tensor cores after this one's have a K there
};
Instruction decode_instruction(u32 bits, const Modifiers& mods);

// Shared-memory matrix descriptor (PTX ISA 9.7.16.4.1); addresses are offsets in the CTA's shared memory.
struct MatrixDescriptor {
    u32 start, leading, stride, base;
    Swizzle swizzle;
    bool operator==(const MatrixDescriptor&) const = default;
};
MatrixDescriptor decode_matrix(u64 bits, const char* which);

constexpr u32 kAddressMask = 0x3FFFF;  // matrix-descriptor-encode keeps 18 bits: sums wrap there

constexpr u32 swizzle_bytes(Swizzle s) {
    switch (s) {
        case Swizzle::none: return kChunk;
        case Swizzle::b32: return 32;
        case Swizzle::b64: return 64;
        default: return 128;
    }
}

// The pattern repeats from where it starts, which the base offset tells in units of 128 bytes (PTX ISA 9.7.16.4.1).
inline u32 swizzle_address(const MatrixDescriptor& d, u32 address) {
    const u32 row = (address >> 7) - d.base;
    switch (d.swizzle) {
        case Swizzle::b32: return address ^ (row & 1) << 4;
        case Swizzle::b64: return address ^ (row & 3) << 4;
        case Swizzle::b128: return address ^ (row & 7) << 4;
        case Swizzle::b128_atom32: return address ^ (row & 3) << 5;
        default: return address;
    }
}

// Shared offset of the 16-byte chunk of element (mn, k) in the canonical layouts (PTX ISA 9.7.16.3.3): K-major chunks
// hold one row's k, MN-major ones one k's rows.
inline u32 k_major_chunk(const MatrixDescriptor& d, u32 mn, u32 chunk) {
    const u32 along = d.swizzle == Swizzle::none ? d.leading : kChunk;
    const u32 a = d.start + mn / 8 * d.stride + mn % 8 * swizzle_bytes(d.swizzle) + chunk * along;
    return swizzle_address(d, a & kAddressMask);
}

inline u32 mn_major_chunk(const MatrixDescriptor& d, u32 mn, u32 k, u32 element_bytes) {
    const u32 span = swizzle_bytes(d.swizzle), byte = mn * element_bytes;
    u32 a = d.start;
    if (d.swizzle == Swizzle::none) {
        a += byte / kChunk * d.stride + k % 8 * kChunk + k / 8 * d.leading;
    } else {
        const u32 group = d.swizzle == Swizzle::b128_atom32 ? 4 : 8;  // PTX ISA 9.7.16.10.6: atoms of 8x4 and 8x8
        a += byte / span * d.leading + byte % span / kChunk * kChunk + k % group * span + k / group * d.stride;
    }
    return swizzle_address(d, a & kAddressMask);
}
void check_layout(const MatrixDescriptor& d, ElementType format, Kind kind, bool mn_major, const char* which);

// Columns of B that are taken as zero, and the first column read (PTX ISA 9.7.16.4.3).
struct ColumnMask {
    u32 shift = 0;
    std::bitset<kMaxN> zero;
};
ColumnMask decode_column_mask(u64 bits, const Instruction& i);

bool is_padded(ElementType f);  // 16 elements of 6 or 4 bits in 16 bytes of shared memory, with padding behind them

// 16 packed elements -> 16 byte containers (PTX ISA 9.7.16.9.1, 9.7.16.10.4).
void unpack_b6x16_p32(const u8* source, u8* containers);
void unpack_b4x16_p64(const u8* source, u8* containers);

// `n` bytes of elements, as tensor memory holds them (padded formats unpacked), to numbers.
void decode_bytes(ElementType f, const u8* bytes, u32 n, float* out);
void decode_bytes(ElementType f, const u8* bytes, u32 n, i32* out);
// Chunks of 16 bytes at `chunks` in `memory`, `inner` after `inner` of them: the elements of chunk q of the p-th such
// group go to out + p * outer_pitch + q * inner_pitch. Of padded formats as tensor memory holds them.
struct ChunkGrid {
    u32 inner, outer_pitch, inner_pitch;
};
void decode_chunks(ElementType f, const u8* memory, std::span<const u32> chunks, const ChunkGrid& grid, float* out);
void decode_chunks(ElementType f, const u8* memory, std::span<const u32> chunks, const ChunkGrid& grid, i32* out);
// `rows` rows of 32 bytes, transposed: element k of row r becomes out[k * pitch + r]. In blocks of 16 rows: `bytes` and
// `out` have room for whole ones.
void decode_transposed(ElementType f, const u8* bytes, u32 rows, float* out, u32 pitch);
void decode_transposed(ElementType f, const u8* bytes, u32 rows, i32* out, u32 pitch);
// The same without decoding: word w of row r becomes out[w * pitch + r].
void transpose_rows(const u8* bytes, u32 rows, u32* out, u32 pitch);
// Whether every number of a format is one of bf16; and of a format of one byte, which. The bytes of those without the
// top bit apart, and what that bit, a sign or padding, does to the upper one.
bool is_bf16(ElementType f);
struct Bf16Table {
    alignas(64) u8 low[128], high[128];
    u16 number[256];
    u8 sign;
};
const Bf16Table& bf16_table(ElementType f);

// Where D and A lie in tensor memory (PTX ISA 9.7.16.10.5): the rows of one CTA, and the banks that its columns are
// dealt to: bank b holds columns [b n / banks, (b + 1) n / banks) of D in lanes of its own, all from the same column.
struct DataPath {
    char layout;
    u32 rows, banks;
    bool half;  // 16 of every 32 lanes
    u32 lane_of(u32 row, u32 bank) const { return half ? row / 16 * 32 + row % 16 : bank * rows + row; }
};
DataPath data_path(const Modifiers& mods, u32 m);

// An operand matrix in the shared memory of a CTA.
struct SharedOperand {
    MatrixDescriptor descriptor;
    ElementType format;
    bool mn_major;
    u32 first = 0, rows = 0;
    bool operator==(const SharedOperand&) const = default;
};
void check_shared(Warp& w, Cta& cta, const SharedOperand& o, const Accessor& who, const char* what);
void check_chunks(Warp& w, Cta& cta, std::vector<u32> chunks, const Accessor& who, const char* what);
// Rows of 32 bytes each, k ascending, as tensor memory would hold them.
void gather(const Cta& cta, const SharedOperand& o, u8* rows);
// The chunks of an operand: rows' halves, or where has_columns, for every k a piece of its column.
struct Chunks {
    const u8* memory;
    std::span<const u32> offsets;
};
Chunks chunks_of(const Cta& cta, const SharedOperand& o);
bool has_columns(const SharedOperand& o);

struct TmemAddress {
    u32 lane, column;
};
inline TmemAddress tmem_address(u32 bits) { return {bits >> 16, bits & 0xFFFF}; }

// Of tensor memory.
struct Columns {
    u32 first, count;
};

// The columns of tensor memory that the metadata of a sparse A takes.
u32 metadata_width(Kind kind);

struct Mma {
    Instruction shape;
    Modifiers mods;
    DataPath path;
    SharedOperand a, b, b_second;  // b_second: the second 32 bytes of each row, with a sparse A
    u32 a_column = 0, d_column = 0, d_lane = 0, scale_a = 0, scale_b = 0, metadata = 0;
    bool accumulate = false;
    u32 input_scale = 0;
    std::array<u32, 8> disabled{};  // lanes of the even CTA, then of the odd one
    bool has_mask = false;
    ColumnMask mask;
    std::array<Cta*, 2> ctas{};  // even, odd; the second is null without a pair
    MmaSums sums = MmaSums::fast;

    Columns d_columns() const { return {d_column, shape.n / path.banks}; }
    Columns scale_a_columns() const { return {scale_a, (path.rows + 31) / 32}; }
    Columns scale_b_columns() const { return {scale_b, (shape.n + 31) / 32}; }
    Columns metadata_columns() const { return {metadata, metadata_width(shape.kind)}; }
};
void execute(const Mma& op);

// Whether what `who` does is pipelined behind, or known to come after, the MMAs of its stream that use the same
// columns.
void check_order(Warp& w, const Mma& op, const Accessor& who);
void check_copy_order(Warp& w, Cta& cta, const Columns& written, const Accessor& who);

// The CTAs that an instruction of this cta_group works on, even one first; records the group and reports a mixture.
std::array<Cta*, 2> ctas_of(Warp& w, bool pair, const char* what);
u32 issuing_lane(u32 mask, const char* what);
const char* kind_name(Kind k);

}  // namespace ptxm::tc
