// Binary floating-point formats of 4 to 64 bits: exact decoding, and encoding with every rounding that cvt has.
//
// A finite number is magnitude x 2^exponent with a 64-bit magnitude; no host rounding mode is involved.
#pragma once

#include <bit>
#include <cmath>
#include <limits>

#include "isa/program.hpp"

namespace ptxm {

struct Format {
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

constexpr Format kF16{5, 10, 15, Format::ieee}, kBf16{8, 7, 127, Format::ieee}, kTf32{8, 10, 127, Format::ieee},
    kF32{8, 23, 127, Format::ieee}, kF64{11, 52, 1023, Format::ieee}, kE4m3{4, 3, 7, Format::nan_only},
    kE5m2{5, 2, 15, Format::ieee}, kE2m1{2, 1, 1, Format::none}, kE2m3{2, 3, 1, Format::none},
    kE3m2{3, 2, 3, Format::none};

struct Number {
    bool negative = false, nan = false, infinite = false;
    u64 magnitude = 0;
    i32 exponent = 0;
};

inline Number decode(const Format& f, u64 bits) {
    Number n;
    n.negative = bits & f.sign_bit();
    const u64 field = bits & (f.sign_bit() - 1), fraction = field & ((u64{1} << f.mantissa_bits) - 1);
    const i32 biased = static_cast<i32>(field >> f.mantissa_bits);
    if (f.specials == Format::nan_only && field == f.nan()) n.nan = true;
    if (f.specials == Format::ieee && field >= f.exponent_mask()) (fraction ? n.nan : n.infinite) = true;
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

inline u64 overflow(const Format& f, bool negative, Rounding r, bool satfinite) {
    const bool inwards =
        r == Rounding::zero || (r == Rounding::minus && !negative) || (r == Rounding::plus && negative);
    if (satfinite || inwards || f.specials == Format::none) return f.max();
    return f.specials == Format::nan_only ? f.nan() : f.exponent_mask();
}

inline u64 encode_finite(const Format& f, const Number& n, Rounding r, bool satfinite) {
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
inline u64 encode(const Format& f, const Number& n, Rounding r, bool satfinite = false) {
    if (n.nan) return f.specials == Format::none ? f.max() : f.nan();
    const u64 sign = n.negative ? f.sign_bit() : 0;
    if (n.infinite)
        return sign |
               (satfinite || f.specials != Format::ieee ? overflow(f, n.negative, Rounding::nearest_even, satfinite)
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

}  // namespace ptxm
