// The number formats of every instruction: one table. Below it exact decoding of floating-point numbers of 4 to 64
// bits, encoding with every rounding that cvt has, and the conversions that loops over elements use.
//
// A finite number is magnitude x 2^exponent with a 64-bit magnitude; no host rounding mode is involved.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "isa/program.hpp"

namespace ptxm {

struct FloatFormat {
    u32 exponent_bits, mantissa_bits;
    i32 bias;
    enum Specials : u8 { ieee, nan_only, none } specials;  // e4m3 has no infinity, the 4- and 6-bit formats neither

    constexpr u32 bits() const { return 1 + exponent_bits + mantissa_bits; }
    constexpr u64 sign_bit() const { return u64{1} << (exponent_bits + mantissa_bits); }
    constexpr u64 exponent_mask() const { return ((u64{1} << exponent_bits) - 1) << mantissa_bits; }
    // The largest finite number.
    constexpr u64 max() const {
        const u64 all = sign_bit() - 1;
        return specials == none ? all : specials == nan_only ? all - 1 : exponent_mask() - 1;
    }
    // PTX's canonical NaN: all ones below the sign. The formats without a NaN convert it to the largest number.
    constexpr u64 nan() const { return sign_bit() - 1; }
};

// One object each, wherever they are named: formats are told apart by their addresses.
inline constexpr FloatFormat kF16{5, 10, 15, FloatFormat::ieee}, kBf16{8, 7, 127, FloatFormat::ieee},
    kTf32{8, 10, 127, FloatFormat::ieee}, kF32{8, 23, 127, FloatFormat::ieee}, kF64{11, 52, 1023, FloatFormat::ieee},
    kE4m3{4, 3, 7, FloatFormat::nan_only}, kE5m2{5, 2, 15, FloatFormat::ieee}, kE2m1{2, 1, 1, FloatFormat::none},
    kE2m3{2, 3, 1, FloatFormat::none}, kE3m2{3, 2, 3, FloatFormat::none};

// The types of elements in matrices, as PTX names them, and the bits of the byte container that an element of up to 8
// bits has in registers and in tensor memory: those of 6 bits in the low ones, those of 4 in bits 2 to 5 (PTX
// ISA 9.7.14.5). e2m1x2: two of e2m1 a byte.
//
// They are not rows of PTXM_TYPES, because the two tables answer different questions. Ty says which register an operand
// of an instruction is: a row may be bits without a number (b32), a predicate, or a pair in one register (f16x2).
// ElementType says which number the bits of one element are: it has a format, may be narrower than any register, and
// none of those three is one. Where both have a name they differ: s8 is in a register of 16 bits and an element of 8,
// and e2m1x2 is two numbers in a register of 16 bits and a byte of tensor memory. A row that no register may have would
// have to be refused wherever a type is read, and four types of one table would not fit into the modifiers of an mma,
// which have 4 bits for each.
#define PTXM_ELEMENT_TYPES(X) \
    X(f16, &kF16, 16)         \
    X(bf16, &kBf16, 16)       \
    X(tf32, &kTf32, 32)       \
    X(f32, &kF32, 32)         \
    X(f64, &kF64, 64)         \
    X(s32, nullptr, 32)       \
    X(e4m3, &kE4m3, 8)        \
    X(e5m2, &kE5m2, 8)        \
    X(e3m2, &kE3m2, 8)        \
    X(e2m3, &kE2m3, 8)        \
    X(e2m1, &kE2m1, 8)        \
    X(s8, nullptr, 8)         \
    X(u8, nullptr, 8)         \
    X(s4, nullptr, 4)         \
    X(u4, nullptr, 4)         \
    X(b1, nullptr, 1)         \
    X(e2m1x2, &kE2m1, 8)

enum class ElementType : ptxm::u8 {
#define PTXM_ENUM(name, format, bits) name,
    PTXM_ELEMENT_TYPES(PTXM_ENUM)
#undef PTXM_ENUM
};

struct ElementTypeRow {
    const FloatFormat* format;  // null for integers
    u32 container_bits;
};
constexpr ElementTypeRow kElementTypes[] = {
#define PTXM_ROW(name, format, bits) {format, bits},
    PTXM_ELEMENT_TYPES(PTXM_ROW)
#undef PTXM_ROW
};

constexpr const ElementTypeRow& row_of(ElementType t) { return kElementTypes[static_cast<u32>(t)]; }
constexpr u32 container_bits(ElementType t) { return row_of(t).container_bits; }
constexpr u32 container_bytes(ElementType t) { return container_bits(t) / 8; }
// Floating-point types of up to 8 bits.
constexpr bool is_small_float(ElementType t) { return row_of(t).format && row_of(t).format->bits() <= 8; }
// The exponent of a floating-point format's smallest normal number.
constexpr i32 least_exponent(ElementType t) { return 1 - row_of(t).format->bias; }

struct Number {
    bool negative = false, nan = false, infinite = false;
    u64 magnitude = 0;
    i32 exponent = 0;
};

inline Number decode(const FloatFormat& f, u64 bits) {
    Number n;
    n.negative = bits & f.sign_bit();
    const u64 field = bits & (f.sign_bit() - 1), fraction = field & ((u64{1} << f.mantissa_bits) - 1);
    const i32 biased = static_cast<i32>(field >> f.mantissa_bits);
    if (f.specials == FloatFormat::nan_only && field == f.nan()) n.nan = true;
    if (f.specials == FloatFormat::ieee && field >= f.exponent_mask()) (fraction ? n.nan : n.infinite) = true;
    n.magnitude = biased ? fraction | u64{1} << f.mantissa_bits : fraction;
    n.exponent = (biased ? biased : 1) - f.bias - static_cast<i32>(f.mantissa_bits);
    return n;
}

enum class Rounding : u8 { nearest_even, zero, minus, plus, nearest_away };

inline bool rounds_up(Rounding r, bool negative, u64 kept, bool inexact, int against_half) {
    switch (r) {
        case Rounding::nearest_even: return against_half > 0 || (against_half == 0 && (kept & 1));
        case Rounding::nearest_away: return against_half >= 0;
        case Rounding::minus: return negative && inexact;
        case Rounding::plus: return !negative && inexact;
        case Rounding::zero: break;
    }
    return false;
}

inline u64 overflow(const FloatFormat& f, bool negative, Rounding r, bool satfinite) {
    const bool inwards =
        r == Rounding::zero || (r == Rounding::minus && !negative) || (r == Rounding::plus && negative);
    if (satfinite || inwards || f.specials == FloatFormat::none) return f.max();
    return f.specials == FloatFormat::nan_only ? f.nan() : f.exponent_mask();
}

inline u64 encode_finite(const FloatFormat& f, const Number& n, Rounding r, bool satfinite) {
    const i32 leading = n.exponent + 63 - std::countl_zero(n.magnitude), lowest = 1 - f.bias;
    const i32 quantum = std::max(leading, lowest) - static_cast<i32>(f.mantissa_bits);
    const i32 shift = quantum - n.exponent;
    u64 kept;
    if (shift <= 0) {
        kept = n.magnitude << -shift;
    } else {
        const unsigned __int128 wide = n.magnitude;
        const u32 s = static_cast<u32>(std::min(shift, 66));
        kept = static_cast<u64>(wide >> s);
        const unsigned __int128 rest = wide - (static_cast<unsigned __int128>(kept) << s),
                                half = static_cast<unsigned __int128>(1) << (s - 1);
        if (rounds_up(r, n.negative, kept, rest != 0, rest > half ? 1 : rest == half ? 0 : -1)) kept += 1;
    }
    // A carry out of the fraction runs into the exponent, as it should.
    const u64 field = (static_cast<u64>(std::max(leading, lowest) + f.bias - 1) << f.mantissa_bits) + kept;
    return field > f.max() ? overflow(f, n.negative, r, satfinite) : field;
}

// The bits of `n` in format `f`.
inline u64 encode(const FloatFormat& f, const Number& n, Rounding r, bool satfinite = false) {
    if (n.nan) return f.specials == FloatFormat::none ? f.max() : f.nan();
    const u64 sign = n.negative ? f.sign_bit() : 0;
    if (n.infinite)
        return sign | (satfinite || f.specials != FloatFormat::ieee
                           ? overflow(f, n.negative, Rounding::nearest_even, satfinite)
                           : f.exponent_mask());
    if (n.magnitude == 0) return sign;
    return sign | encode_finite(f, n, r, satfinite);
}

// f32 <-> f16 to nearest even, in a form that compilers vectorise.
[[gnu::always_inline]] inline u16 float_to_half(float x) {
    const u32 bits = std::bit_cast<u32>(x), sign = bits >> 16 & 0x8000, a = bits & 0x7FFFFFFF;
    const u32 normal = (a + 0xFFF + (a >> 13 & 1) - (112u << 23)) >> 13;
    // Adding 0.5 rounds at 2^-24, the spacing of f16's denormals.
    const u32 small = std::bit_cast<u32>(std::bit_cast<float>(a) + 0.5f) - 0x3F000000u;
    u32 result = a < 0x38800000 ? small : normal;
    result = a >= 0x47800000 ? 0x7C00 : result;
    return static_cast<u16>(a > 0x7F800000 ? 0x7FFF : sign | result);
}

[[gnu::always_inline]] inline float half_to_float(u16 h) {
    const u32 magnitude = h & 0x7FFF, sign = static_cast<u32>(h & 0x8000) << 16;
    const u32 normal = (magnitude << 13) + (112u << 23);
    const u32 special = magnitude == 0x7C00 ? 0x7F800000u : 0x7FFFFFFFu;
    const u32 small = std::bit_cast<u32>(static_cast<float>(magnitude) * 0x1p-24f);
    const u32 a = magnitude < 0x400 ? small : magnitude >= 0x7C00 ? special : normal;
    return std::bit_cast<float>(magnitude > 0x7C00 ? 0x7FFFFFFFu : sign | a);
}

// The numbers of the 256 bytes that may hold an element of a floating-point type of up to 8 bits, see ElementType. NaN
// is 0x7FFFFFFF.
const std::array<float, 256>& numbers_of_bytes(ElementType t);

// A scale of a block of elements: ue8m0, 2^(bits - 127) and 0xFF a NaN, or ue4m3, whose top bit is not read.
double decode_scale(u8 bits, bool e8m0);

}  // namespace ptxm
