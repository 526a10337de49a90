// What the products of the tensor core share: their operands as numbers.
#pragma once

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "ptx/tcgen05/tcgen05.hpp"

namespace ptxm::tc {

constexpr u32 kBlockColumns = 16;

// Sums in one register of the host: of a vector in several, GCC keeps each part in memory, which takes ten times as
// long.
#if defined(__AVX512F__)
constexpr u32 kVectorColumns = 16;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr u32 kVectorColumns = 8;
#else
constexpr u32 kVectorColumns = 4;
#endif
constexpr u32 kBlockVectors = kBlockColumns / kVectorColumns;
typedef float Floats __attribute__((vector_size(kVectorColumns * sizeof(float))));

// Written out for AVX-512: a copy in two halves would stall the load of the whole.
[[gnu::always_inline]] inline Floats load_floats(const float* from) {
#ifdef __AVX512F__
    return _mm512_loadu_ps(from);
#else
    Floats v;
    std::memcpy(&v, from, sizeof v);
    return v;
#endif
}

[[gnu::always_inline]] inline Floats multiply_add(float x, const Floats& y, const Floats& s) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(_mm512_set1_ps(x), y, s);
#elif defined(__AVX2__) && defined(__FMA__)
    return _mm256_fmadd_ps(_mm256_set1_ps(x), y, s);
#else
    Floats sum;
    for (u32 j = 0; j < kVectorColumns; ++j) sum[j] = __builtin_fmaf(x, y[j], s[j]);
    return sum;
#endif
}

// What every NaN of D is, as cvt and the other instructions of PTX have it: bits do not depend on the host.
inline float canonical_nan() { return std::bit_cast<float>(0x7FFFFFFF); }
inline float canonical(float x) { return x == x ? x : canonical_nan(); }

// The rows of one bank: of A by number, and their words of D.
struct Rows {
    u32 count = 0;
    u32 row[kTmemLanes];
    u32* d[kTmemLanes];
    u32 lane[kTmemLanes];
};
Rows rows_of(const Mma& op, u32 which, u32 bank);

// Rows of A, one a lane of the data path: [bank][row][k], `pitch` from row to row. Those in tensor memory are settled.
void load_a(const Mma& op, Cta& cta, float* out, u32 pitch);
void load_a(const Mma& op, Cta& cta, i32* out, u32 pitch);
// B^T of 32 bytes of K, columns of zero-masked columns cleared: [k][n], `pitch` from k to k. Room for n up to the next
// multiple of 16.
void load_b(const Mma& op, const SharedOperand& b, float* bt, u32 pitch);
void load_b(const Mma& op, const SharedOperand& b, i32* bt, u32 pitch);

// ptx/tcgen05/operands/operand_sparse.cpp: the row of B that each element of a row of A multiplies; `lane` is the
// row's.
void positions(const Mma& op, Cta& cta, u32 lane, u16* k);
// As the dense product: a has shape.k elements a row, bt kMaxN columns a row of K, scale_a kMaxScales a row of the
// path, scale_b a copy for every partition of 32 lanes. All of tensor memory is settled.
void sparse_product(const Mma& op, Cta& cta, const Rows& rows, const float* a, const float* bt, const double* scale_a,
                    const double* scale_b, u32 n);
void sparse_product(const Mma& op, Cta& cta, const Rows& rows, const i32* a, const i32* bt, const double* scale_a,
                    const double* scale_b, u32 n);

// ptx/tcgen05/product/silicon/silicon.cpp: the same as silicon does it, with a dense A too.
void silicon_product(const Mma& op, Cta& cta, const Rows& rows, const float* a, const float* bt, const double* scale_a,
                     const double* scale_b, u32 n);
// ptx/tcgen05/product/silicon/four_bits.cpp: of kinds whose elements have four bits and whose sums have a window of
// their own.
void silicon_product_of_four_bits(const Mma& op, Cta& cta, const Rows& rows, const float* a, const float* bt,
                                  const double* scale_a, const double* scale_b, u32 n);

// ptx/tcgen05/product/chain.cpp: dense A, kinds without scales. MMAs that add to the same D, one after the other, are
// multiplied together when D is looked at.
void execute_float(const Mma& op);

// The K of a chain; its operands from row to row of A, and from k to k of B: they start in different cache sets.
constexpr u32 kChainK = 128;
constexpr u32 kAPitch = kChainK + kBlockColumns, kBPitch = kMaxN + kBlockColumns;

struct Sums {
    u32 depth, group;  // of K: of all MMAs, of one
    bool accumulate;
    float scale;  // of D, which is read before the first is added
};

// Of the rows of a bank, by their place in Rows.
struct RowRange {
    u32 first, count;
};

// ptx/tcgen05/product/fast/vectors.cpp: some rows and columns of D, in f32 or f16. The products of one MMA are summed
// in f32, fused, those of even k one after the other and those of odd k; the two sums are added, and what they give to
// D.
void multiply_vectors(const Sums& s, Accumulator type, const Rows& rows, const RowRange& range, const float* a,
                      const float* bt, const Columns& columns);

// ptx/tcgen05/product/silicon/silicon.cpp: the same as silicon does it, of whole rows.
void multiply_as_silicon(const Sums& s, const Instruction& shape, const Rows& rows, const float* a, const float* bt,
                         u32 columns);

// Operands whose elements are numbers of bf16, as the host's tiles take them: the rows of A, and of B for every two k a
// row of pairs, the even one in the low half.
constexpr u32 kPackedPitch = kChainK + 32;  // of A; whole cache lines
struct Packed {
    Packed() {}  // leaves the arrays as they are
    alignas(64) u16 a[2][kTmemLanes * kPackedPitch];
    alignas(64) u32 b[kChainK / 2 * kBPitch];
    u32 rows;  // of A, for every bank in turn
    // The bits of magnitudes, times two; `low` of those that are not zero, 0x10000 where all are.
    struct Range {
        u32 low, high;
    };
    // Lanes that keep the lowest, less one, and the highest of what they see: zero is above all.
    struct Magnitudes {
        typedef u16 Lanes __attribute__((vector_size(kChunk)));
        Lanes low, high;
        void clear() { low = ~Lanes{}, high = Lanes{}; }
        [[gnu::always_inline]] void include(const Lanes& l, const Lanes& h) {
            low = l < low ? l : low;
            high = h > high ? h : high;
        }
        Range range() const {
            Range r{low[0], high[0]};
            for (u32 e = 1; e < kChunk / sizeof(u16); ++e)
                r = {std::min<u32>(r.low, low[e]), std::max<u32>(r.high, high[e])};
            return {r.low + 1, r.high};
        }
    };
    Magnitudes magnitudes_a, magnitudes_b;
};

// ptx/tcgen05/operands/operand_rows.cpp: the chunks of A, two of them a row of the data path. Where neither shared nor
// tensor memory has them as the tensor core reads them, they are gathered. Rows of shared memory serve every bank:
// there are path.rows of them.
struct AChunks {
    std::array<u32, 2 * kTmemLanes> offsets;
    Chunks chunks;
};
void find_a(const Mma& op, Cta& cta, AChunks& out);
// Room for 32 bytes of K of the rows of an operand, and then for whole blocks of 16 of them.
u8* gathered();

// ptx/tcgen05/operands/operand_packed.cpp: whether an MMA's operands can be packed, and from k on those of one.
bool can_pack(const Mma& op);
void pack_a(const Mma& op, u32 which, u32 k, Packed& out);
void pack_b(const Mma& op, u32 k, Packed& out);
// `depth` of K, laid out as load_a and load_b do.
void unpack_a(const Packed& from, u32 which, u32 depth, float* a);
void unpack_b(const Packed& from, u32 depth, float* bt);

// ptx/tcgen05/product/fast/tiles.cpp: the host's matrix instructions for MMAs whose K is `group`. They give the bits
// that multiply_vectors gives where tiles_fit and multiply say so.
bool tiles_fit(const Packed& operands, const Sums& s);
constexpr u32 kTileRows = 16;
// Of D, in tiles of 16 x 16: 1 x 1 to 1 x 4, 2 x 1, 2 x 2 or 4 x 1.
struct TileBlock {
    u32 rows, columns;
};
class Tiles {
public:
    explicit Tiles(u32 group);
    ~Tiles();
    Tiles(const Tiles&) = delete;
    Tiles& operator=(const Tiles&) = delete;
    // d and a: where each 16 rows start, Tmem::kPitch and kPackedPitch apart. False, with nothing done, where the bits
    // of D do not allow it.
    bool multiply(const Sums& s, const TileBlock& block, u32* const* d, const u16* const* a, const u32* b) const;
};

}  // namespace ptxm::tc
