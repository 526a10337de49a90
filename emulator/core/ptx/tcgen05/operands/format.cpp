// Number formats of the tensor core, and how elements narrower than a byte are packed.
#include <bit>
#include <cmath>
#include <limits>

#if defined(__AVX512F__) || defined(__F16C__)
#include <immintrin.h>
#endif

#include "numbers/single.hpp"
#include "ptx/tcgen05/tcgen05.hpp"

namespace ptxm::tc {
bool is_padded(ElementType f) { return f == ElementType::e2m3 || f == ElementType::e3m2 || f == ElementType::e2m1; }

void unpack_b6x16_p32(const u8* source, u8* containers) {
    for (u32 k = 0; k < 16; k += 4) {
        const u8* s = source + k / 4 * 3;
        const u32 bits = s[0] | s[1] << 8 | static_cast<u32>(s[2]) << 16;
        for (u32 j = 0; j < 4; ++j) containers[k + j] = bits >> (6 * j) & 0x3F;
    }
}

void unpack_b4x16_p64(const u8* source, u8* containers) {
    for (u32 k = 0; k < 16; ++k) containers[k] = static_cast<u8>((source[k / 2] >> (4 * (k % 2)) & 0xF) << 2);
}

void decode_bytes(ElementType f, const u8* bytes, u32 n, float* out) {
    const auto decode = [&]<class T>(T, auto number) {
        for (u32 k = 0; k < n / sizeof(T); ++k) {
            T bits;
            std::memcpy(&bits, bytes + k * sizeof bits, sizeof bits);
            out[k] = number(bits);
        }
    };
    switch (f) {
        case ElementType::f16: return decode(u16{}, half_to_float);
        case ElementType::bf16: return decode(u16{}, [](u16 bits) { return bf16_to_float(bits); });
        case ElementType::tf32: return decode(u32{}, [](u32 word) { return std::bit_cast<float>(word & ~0x1FFFu); });
        case ElementType::e2m1x2: {
            const auto& t = numbers_of_bytes(ElementType::e2m1);
            for (u32 k = 0; k < 2 * n; ++k) out[k] = t[(bytes[k / 2] >> (4 * (k % 2)) & 0xF) << 2];
            return;
        }
        default: return decode(u8{}, [t = numbers_of_bytes(f).data()](u8 b) { return t[b]; });
    }
}

namespace {

// decode(chunk, out) for each chunk, its size known where the loop is compiled.
template <class T, class Decode>
[[gnu::always_inline]] inline void each_chunk(const u8* memory, std::span<const u32> chunks, const ChunkGrid& grid,
                                              T* out, Decode decode) {
    for (std::size_t n = 0; n < chunks.size(); n += grid.inner, out += grid.outer_pitch)
        for (u32 q = 0; q < grid.inner; ++q) decode(memory + chunks[n + q], out + q * grid.inner_pitch);
}

// A chunk of f16. The instruction gives the same numbers; of NaN it makes a quiet one.
[[gnu::always_inline]] inline void halves_to_floats(const u8* chunk, float* out) {
#ifdef __F16C__
    _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(chunk))));
#else
    u16 bits[kChunk / sizeof(u16)];
    std::memcpy(bits, chunk, kChunk);
    for (u32 k = 0; k < kChunk / sizeof(u16); ++k) out[k] = half_to_float(bits[k]);
#endif
}

// number(bits) of each element of a chunk.
template <class Bits, class T, class Number>
[[gnu::always_inline]] inline void decode_chunk(const u8* chunk, T* out, Number number) {
    Bits bits[kChunk / sizeof(Bits)];
    std::memcpy(bits, chunk, kChunk);
    for (u32 k = 0; k < kChunk / sizeof(Bits); ++k) out[k] = number(bits[k]);
}

}  // namespace

void decode_chunks(ElementType f, const u8* memory, std::span<const u32> chunks, const ChunkGrid& grid, float* out) {
    const auto decode = [&]<class Bits>(Bits, auto number) {
        each_chunk(memory, chunks, grid, out,
                   [number](const u8* chunk, float* to) { decode_chunk<Bits>(chunk, to, number); });
    };
    switch (f) {
        case ElementType::f16: return each_chunk(memory, chunks, grid, out, halves_to_floats);
        case ElementType::bf16: return decode(u16{}, [](u16 bits) { return bf16_to_float(bits); });
        case ElementType::tf32: return decode(u32{}, [](u32 word) { return std::bit_cast<float>(word & ~0x1FFFu); });
        case ElementType::e2m1x2:
            return each_chunk(memory, chunks, grid, out,
                              [](const u8* chunk, float* to) { decode_bytes(ElementType::e2m1x2, chunk, kChunk, to); });
        default: return decode(u8{}, [t = numbers_of_bytes(f).data()](u8 b) { return t[b]; });
    }
}

void decode_chunks(ElementType f, const u8* memory, std::span<const u32> chunks, const ChunkGrid& grid, i32* out) {
    const auto decode = [&](auto number) {
        each_chunk(memory, chunks, grid, out,
                   [number](const u8* chunk, i32* to) { decode_chunk<u8>(chunk, to, number); });
    };
    if (f == ElementType::s8) return decode([](u8 b) { return i32{static_cast<std::int8_t>(b)}; });
    decode([](u8 b) { return i32{b}; });
}

void decode_bytes(ElementType f, const u8* bytes, u32 n, i32* out) {
    if (f == ElementType::s8)
        for (u32 k = 0; k < n; ++k) out[k] = static_cast<std::int8_t>(bytes[k]);
    else
        for (u32 k = 0; k < n; ++k) out[k] = bytes[k];
}

namespace {

constexpr u32 kBlock = 16, kRowWords = kRowBytes / 4;

// Word i of 16 rows of 32 bytes -> words[i].
void transpose_words(const u8* rows, u32 (&words)[kRowWords][kBlock]) {
#ifdef __AVX512F__
    // Written out: three rounds of shuffles, where GCC would load word by word. Row pairs; words of four rows together;
    // of eight; of sixteen.
    const __m512i low = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    const __m512i high = _mm512_setr_epi32(4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31);
    __m512i pairs[8], fours[4][2];
    for (u32 i = 0; i < 8; ++i) pairs[i] = _mm512_loadu_si512(rows + i * 2 * kRowBytes);
    for (u32 i = 0; i < 4; ++i) {
        fours[i][0] = _mm512_permutex2var_epi32(pairs[2 * i], low, pairs[2 * i + 1]);
        fours[i][1] = _mm512_permutex2var_epi32(pairs[2 * i], high, pairs[2 * i + 1]);
    }
    for (u32 h = 0; h < 2; ++h) {
        // Quarter q of `fours` holds word 4h + q of four rows.
        const __m512i a = _mm512_maskz_shuffle_i32x4(0xFFFF, fours[0][h], fours[1][h], 0x44);
        const __m512i b = _mm512_maskz_shuffle_i32x4(0xFFFF, fours[0][h], fours[1][h], 0xEE);
        const __m512i c = _mm512_maskz_shuffle_i32x4(0xFFFF, fours[2][h], fours[3][h], 0x44);
        const __m512i d = _mm512_maskz_shuffle_i32x4(0xFFFF, fours[2][h], fours[3][h], 0xEE);
        _mm512_storeu_si512(words[4 * h], _mm512_maskz_shuffle_i32x4(0xFFFF, a, c, 0x88));
        _mm512_storeu_si512(words[4 * h + 1], _mm512_maskz_shuffle_i32x4(0xFFFF, a, c, 0xDD));
        _mm512_storeu_si512(words[4 * h + 2], _mm512_maskz_shuffle_i32x4(0xFFFF, b, d, 0x88));
        _mm512_storeu_si512(words[4 * h + 3], _mm512_maskz_shuffle_i32x4(0xFFFF, b, d, 0xDD));
    }
#else
    for (u32 j = 0; j < kBlock; ++j)
        for (u32 i = 0; i < kRowWords; ++i) std::memcpy(&words[i][j], rows + j * kRowBytes + 4 * i, 4);
#endif
}

// decode(word, part): the word's elements, from its low bits on.
template <u32 parts, class T, class Decode>
void transpose(const u8* bytes, u32 rows, T* out, u32 pitch, Decode decode) {
    alignas(64) u32 words[kRowWords][kBlock];
    for (u32 first = 0; first < rows; first += kBlock) {
        transpose_words(bytes + first * kRowBytes, words);
        for (u32 i = 0; i < kRowWords; ++i) {
            for (u32 p = 0; p < parts; ++p) {
                T* to = out + (i * parts + p) * pitch + first;
                for (u32 j = 0; j < kBlock; ++j) to[j] = decode(words[i][j], p);
            }
        }
    }
}

// Of f16: GCC would not find the instruction in half_to_float.
void transpose_halves(const u8* bytes, u32 rows, float* out, u32 pitch) {
#ifdef __AVX512F__
    alignas(64) u32 words[kRowWords][kBlock];
    for (u32 first = 0; first < rows; first += kBlock) {
        transpose_words(bytes + first * kRowBytes, words);
        for (u32 i = 0; i < kRowWords; ++i) {
            float* const to = out + 2 * i * pitch + first;
            const __m512i pairs = _mm512_load_si512(words[i]), odd = _mm512_maskz_srli_epi32(0xFFFF, pairs, 16);
            _mm512_storeu_ps(to, _mm512_maskz_cvtph_ps(0xFFFF, _mm512_maskz_cvtepi32_epi16(0xFFFF, pairs)));
            _mm512_storeu_ps(to + pitch, _mm512_maskz_cvtph_ps(0xFFFF, _mm512_maskz_cvtepi32_epi16(0xFFFF, odd)));
        }
    }
#else
    transpose<2>(bytes, rows, out, pitch,
                 [](u32 word, u32 p) { return half_to_float(static_cast<u16>(word >> 16 * p)); });
#endif
}

}  // namespace

void decode_transposed(ElementType f, const u8* bytes, u32 rows, float* out, u32 pitch) {
    switch (f) {
        case ElementType::f16: return transpose_halves(bytes, rows, out, pitch);
        case ElementType::bf16:
            return transpose<2>(bytes, rows, out, pitch, [](u32 word, u32 p) {
                return std::bit_cast<float>(p ? word & 0xFFFF0000u : word << 16);
            });
        case ElementType::tf32:
            return transpose<1>(bytes, rows, out, pitch,
                                [](u32 word, u32) { return std::bit_cast<float>(word & ~0x1FFFu); });
        case ElementType::e2m1x2: {
            const float* t = numbers_of_bytes(ElementType::e2m1).data();
            return transpose<8>(bytes, rows, out, pitch,
                                [t](u32 word, u32 p) { return t[(word >> 4 * p & 0xF) << 2]; });
        }
        default: {
            const float* t = numbers_of_bytes(f).data();
            return transpose<4>(bytes, rows, out, pitch, [t](u32 word, u32 p) { return t[word >> 8 * p & 0xFF]; });
        }
    }
}

void decode_transposed(ElementType f, const u8* bytes, u32 rows, i32* out, u32 pitch) {
    if (f == ElementType::s8)
        transpose<4>(bytes, rows, out, pitch,
                     [](u32 word, u32 p) { return i32{static_cast<std::int8_t>(word >> 8 * p)}; });
    else
        transpose<4>(bytes, rows, out, pitch, [](u32 word, u32 p) { return static_cast<i32>(word >> 8 * p & 0xFF); });
}

void transpose_rows(const u8* bytes, u32 rows, u32* out, u32 pitch) {
    transpose<1>(bytes, rows, out, pitch, [](u32 word, u32) { return word; });
}

namespace {

Bf16Table make_bf16_table(ElementType f) {
    const auto& t = numbers_of_bytes(f);
    Bf16Table out;
    for (u32 b = 0; b < 256; ++b) out.number[b] = static_cast<u16>(std::bit_cast<u32>(t[b]) >> 16);
    for (u32 b = 0; b < 128; ++b) {
        out.low[b] = static_cast<u8>(out.number[b]);
        out.high[b] = static_cast<u8>(out.number[b] >> 8);
    }
    out.sign = (out.number[0x80] ^ out.number[0]) >> 8;
    return out;
}

}  // namespace

bool is_bf16(ElementType f) { return f == ElementType::bf16 || (f != ElementType::e2m1x2 && is_small_float(f)); }

const Bf16Table& bf16_table(ElementType f) {
    static const Bf16Table e4m3 = make_bf16_table(ElementType::e4m3), e5m2 = make_bf16_table(ElementType::e5m2),
                           e2m3 = make_bf16_table(ElementType::e2m3), e3m2 = make_bf16_table(ElementType::e3m2),
                           e2m1 = make_bf16_table(ElementType::e2m1);
    switch (f) {
        case ElementType::e4m3: return e4m3;
        case ElementType::e5m2: return e5m2;
        case ElementType::e2m3: return e2m3;
        case ElementType::e3m2: return e3m2;
        default: return e2m1;
    }
}

}  // namespace ptxm::tc
