// Operands as bf16, without a detour through f32: rows of A, and of B pairs along K.
#ifdef __AVX512VBMI__
#include <immintrin.h>
#endif

#include "machine/machine.hpp"
#include "numbers/single.hpp"
#include "numbers/vector_shuffle.hpp"
#include "ptx/tcgen05/product/fast/host_tiles.hpp"
#include "ptx/tcgen05/product/product.hpp"

namespace ptxm::tc {
namespace {

template <u32 kBytes>
struct Vector {
    typedef u16 Type __attribute__((vector_size(kBytes)));
};
typedef Vector<kChunk>::Type Halves;
constexpr u32 kHalves = kChunk / sizeof(u16);

// The elements of a chunk, 8 or 16.
template <bool kWide>
[[gnu::always_inline]] inline void to_bf16(const u8* chunk, const Bf16Table* table, u16* out) {
    if constexpr (kWide) {
        std::memcpy(out, chunk, kChunk);
    } else {
#ifdef __AVX512VBMI__
        const auto look_up = [](const u8* bytes, __m512i at) {
            return _mm512_castsi512_si128(
                _mm512_permutex2var_epi8(_mm512_load_si512(bytes), at, _mm512_load_si512(bytes + 64)));
        };
        const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(chunk));
        const __m512i at = _mm512_castsi128_si512(codes);
        const __m128i sign = _mm_and_si128(codes, _mm_set1_epi8(static_cast<char>(table->sign)));
        const __m128i low = look_up(table->low, at), high = _mm_or_si128(look_up(table->high, at), sign);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_unpacklo_epi8(low, high));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + kHalves), _mm_unpackhi_epi8(low, high));
#else
        for (u32 e = 0; e < kChunk; ++e) out[e] = table->number[chunk[e]];
#endif
    }
}

const Bf16Table* table_of(ElementType f) { return f == ElementType::bf16 ? nullptr : &bf16_table(f); }

// As Packed::Magnitudes, in as many lanes as fit.
template <u32 kBytes>
class Extremes {
public:
    [[gnu::always_inline]] void see(const void* numbers) {
        Lanes x;
        std::memcpy(&x, numbers, sizeof x);
        const Lanes magnitude = x + x, below = magnitude - 1;
        low_ = below < low_ ? below : low_;
        high_ = magnitude > high_ ? magnitude : high_;
    }
    void add_to(Packed::Magnitudes& all) const {
        constexpr u32 kParts = kBytes / kChunk;
        Packed::Magnitudes::Lanes low[kParts], high[kParts];
        std::memcpy(low, &low_, sizeof low);
        std::memcpy(high, &high_, sizeof high);
        for (u32 p = 0; p < kParts; ++p) all.include(low[p], high[p]);
    }

private:
    using Lanes = typename Vector<kBytes>::Type;
    Lanes low_ = ~Lanes{}, high_ = {};
};

// Two chunks a row.
template <bool kWide>
void copy_a(const Chunks& a, const Bf16Table* table, u16* out, Packed::Magnitudes& magnitudes) {
    constexpr u32 kElements = kWide ? kHalves : kChunk;
    Extremes<kChunk> extremes;
    for (u32 c = 0; c < a.offsets.size(); c += 2, out += kPackedPitch) {
        const u8 *first = a.memory + a.offsets[c], *second = a.memory + a.offsets[c + 1];
        to_bf16<kWide>(first, table, out);
        to_bf16<kWide>(second, table, out + kElements);
        // As they were stored: a wider load would wait.
        for (u32 e = 0; e < 2 * kElements; e += kHalves) extremes.see(out + e);
    }
    extremes.add_to(magnitudes);
}

// Pairs of a number of `low` and one of `high`.
[[gnu::always_inline]] inline void zip(const u16* low, const u16* high, u32* out) {
    Halves x, y;
    std::memcpy(&x, low, sizeof x);
    std::memcpy(&y, high, sizeof y);
    const Halves first = shuffled<0, 8, 1, 9, 2, 10, 3, 11>(x, y), second = shuffled<4, 12, 5, 13, 6, 14, 7, 15>(x, y);
    std::memcpy(out, &first, sizeof first);
    std::memcpy(out + kHalves / 2, &second, sizeof second);
}

// B along MN: chunks of one k and some columns, for every k.
template <bool kWide>
void interleave(const Chunks& chunks, const Bf16Table* table, u32* out) {
    constexpr u32 kColumns = kWide ? kHalves : kChunk, kDepth = kRowBytes / (kWide ? 2 : 1);
    const u32* at = chunks.offsets.data();
    for (u32 c = 0; c < chunks.offsets.size(); c += kDepth, out += kColumns) {
        for (u32 k = 0; k < kDepth; k += 2, at += 2) {
            u16 pair[2][kColumns];
            for (u32 odd = 0; odd < 2; ++odd) to_bf16<kWide>(chunks.memory + at[odd], table, pair[odd]);
            for (u32 j = 0; j < kColumns; j += kHalves) zip(pair[0] + j, pair[1] + j, out + k / 2 * kBPitch + j);
        }
    }
}

// B along K: 16 k of every row at a time.
template <bool kWide>
void transpose_b(const u8* rows, const Bf16Table* table, u32 n, u32* out) {
    constexpr u32 kWords = kRowBytes / sizeof(u32);
    if constexpr (kWide) return transpose_rows(rows, n, out, kBPitch);
    alignas(64) u16 part[kMaxN * kChunk];
    for (u32 c = 0; c < 2; ++c) {
        for (u32 r = 0; r < n; ++r) to_bf16<false>(rows + r * kRowBytes + c * kChunk, table, part + r * kChunk);
        transpose_rows(reinterpret_cast<const u8*>(part), n, out + c * kWords * kBPitch, kBPitch);
    }
}

template <bool kWide>
void place_b(const Mma& op, u32* out) {
    const Bf16Table* table = table_of(op.shape.b);
    const u32 parts = op.ctas[1] ? 2 : 1, n = op.shape.n / parts;
    if (has_columns(op.b)) {
        for (u32 p = 0; p < parts; ++p) interleave<kWide>(chunks_of(*op.ctas[p], op.b), table, out + p * n);
        return;
    }
    for (u32 p = 0; p < parts; ++p) gather(*op.ctas[p], op.b, gathered() + p * n * kRowBytes);
    transpose_b<kWide>(gathered(), table, op.shape.n, out);
}

}  // namespace

bool can_pack(const Mma& op) {
    const Instruction& s = op.shape;
    return op.sums == MmaSums::fast && use_host_tiles() && is_bf16(s.a) && is_bf16(s.b) && s.d == Accumulator::f32 &&
           !s.negate_a && !s.negate_b && !op.has_mask && s.n / op.path.banks % kTileRows == 0;
}

void pack_a(const Mma& op, u32 which, u32 k, Packed& out) {
    AChunks chunks;
    find_a(op, *op.ctas[which], chunks);
    u16* const to = out.a[which] + k;
    out.rows = static_cast<u32>(chunks.chunks.offsets.size()) / 2;
    if (op.shape.a == ElementType::bf16)
        copy_a<true>(chunks.chunks, nullptr, to, out.magnitudes_a);
    else
        copy_a<false>(chunks.chunks, table_of(op.shape.a), to, out.magnitudes_a);
}

void pack_b(const Mma& op, u32 k, Packed& out) {
    u32* const to = out.b + k / 2 * kBPitch;
    if (op.shape.b == ElementType::bf16)
        place_b<true>(op, to);
    else
        place_b<false>(op, to);
    constexpr u32 kLine = 64;
    Extremes<kLine> extremes;
    for (u32 r = 0; r < op.shape.k / 2; ++r)
        for (u32 j = 0; j < op.shape.n; j += kLine / sizeof(u32)) extremes.see(to + r * kBPitch + j);
    extremes.add_to(out.magnitudes_b);
}

void unpack_a(const Packed& from, u32 which, u32 depth, float* a) {
    for (u32 r = 0; r < kTmemLanes; ++r)
        for (u32 k = 0; k < depth; ++k)
            a[r * kAPitch + k] = bf16_to_float(from.a[which][r % from.rows * kPackedPitch + k]);
}

void unpack_b(const Packed& from, u32 depth, float* bt) {
    for (u32 k = 0; k < depth; k += 2) {
        const u32* const pairs = from.b + k / 2 * kBPitch;
        float* const to = bt + k * kBPitch;
        for (u32 j = 0; j < kMaxN; ++j) to[j] = std::bit_cast<float>(pairs[j] << 16);
        for (u32 j = 0; j < kMaxN; ++j) to[kBPitch + j] = std::bit_cast<float>(pairs[j] & 0xFFFF0000);
    }
}

}  // namespace ptxm::tc
