#include "ptx/scalar/convert_value.hpp"

#include <algorithm>
#include <cmath>

#include "numbers/single.hpp"

namespace ptxm {

const FloatFormat* format_of(Ty ty) {
    switch (ty) {
        case Ty::f16:
        case Ty::f16x2: return &kF16;
        case Ty::bf16:
        case Ty::bf16x2: return &kBf16;
        case Ty::tf32: return &kTf32;
        case Ty::f32: return &kF32;
        case Ty::f64: return &kF64;
        case Ty::e4m3x2: return &kE4m3;
        case Ty::e5m2x2: return &kE5m2;
        case Ty::e2m1x2: return &kE2m1;
        case Ty::e2m3x2: return &kE2m3;
        case Ty::e3m2x2: return &kE3m2;
        default: return nullptr;
    }
}

double round_to_integral(double x, u32 mode) {
    switch (mode & 3) {
        case kRn: return std::nearbyint(x);
        case kRz: return std::trunc(x);
        case kRm: return std::floor(x);
        default: return std::ceil(x);
    }
}

double to_double(const FloatFormat& f, u64 bits) {
    if (&f == &kF64) return std::bit_cast<double>(bits);
    if (&f == &kF32) return static_cast<double>(std::bit_cast<float>(static_cast<u32>(bits)));
    if (&f == &kBf16) return static_cast<double>(bf16_to_float(static_cast<u16>(bits)));
    return static_cast<double>(half_to_float(static_cast<u16>(bits)));
}

// Works on bits: the order of positive numbers is that of their fields.
u64 saturate_bits(const FloatFormat& f, u64 bits) {
    const u64 one = static_cast<u64>(f.bias) << f.mantissa_bits;
    if ((bits & f.sign_bit()) || bits > f.exponent_mask()) return 0;
    return std::min(bits, one);
}

namespace {

// f64 keeps what fits of a NaN's payload, both ways; between the narrower formats there is one NaN.
bool keeps_payload(const FloatFormat& s, const FloatFormat& d, u64 bits) {
    return (&s == &kF64 || &d == &kF64) && (bits & (s.sign_bit() - 1)) > s.exponent_mask();
}

u64 convert_nan(const FloatFormat& s, const FloatFormat& d, u64 bits) {
    const u64 payload = bits & ((u64{1} << s.mantissa_bits) - 1);
    const u64 kept = s.mantissa_bits > d.mantissa_bits ? payload >> (s.mantissa_bits - d.mantissa_bits)
                                                       : payload << (d.mantissa_bits - s.mantissa_bits);
    return (bits & s.sign_bit() ? d.sign_bit() : 0) | d.exponent_mask() | u64{1} << (d.mantissa_bits - 1) | kept;
}

}  // namespace

u64 convert_value(const FloatFormat& s, const FloatFormat& d, u64 bits, u32 mods) {
    if ((mods & kFtz) && &s == &kF32) bits = std::bit_cast<u32>(flush(std::bit_cast<float>(static_cast<u32>(bits))));
    // Like a product (ptx/scalar/floating.cpp), a value below 2^-126 is flushed before it is rounded.
    if ((mods & kFtz) && &d == &kF32 && &s == &kF64 && std::fabs(std::bit_cast<double>(bits)) < 0x1p-126)
        return mods & kSat ? 0 : bits >> 63 << 31;
    if (keeps_payload(s, d, bits)) {
        if ((mods & kFtz) && &s == &kF32) bits = kF32.nan();
        return mods & kSat ? 0 : convert_nan(s, d, bits);
    }
    if (mods & kRoundInt)
        bits = encode(s, decode(kF64, std::bit_cast<u64>(round_to_integral(to_double(s, bits), mods))), Rounding::zero);
    const Rounding rounding = mods & kRoundInt ? Rounding::nearest_even : rounding_of(mods);
    Number n = decode(s, bits);
    if ((mods & kRelu) && n.negative && !n.nan) n = Number{};
    u64 result = encode(d, n, rounding, mods & kSatfinite);
    if ((mods & kFtz) && &d == &kF32)
        result = std::bit_cast<u32>(flush(std::bit_cast<float>(static_cast<u32>(result))));
    return mods & kSat ? saturate_bits(d, result) : result;
}

}  // namespace ptxm
