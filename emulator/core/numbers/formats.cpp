#include "numbers/formats.hpp"

namespace ptxm {
namespace {

using Table = std::array<float, 256>;

float small_number(const FloatFormat& f, u32 bits) {
    const Number n = decode(f, bits);
    if (n.nan) return std::bit_cast<float>(0x7FFFFFFFu);
    const float magnitude =
        n.infinite ? std::numeric_limits<float>::infinity() : std::ldexp(static_cast<float>(n.magnitude), n.exponent);
    return n.negative ? -magnitude : magnitude;
}

Table make_table(const FloatFormat& f) {
    const u32 shift = f.bits() == 4 ? 2 : 0, mask = (1u << f.bits()) - 1;
    Table t;
    for (u32 byte = 0; byte < 256; ++byte) t[byte] = small_number(f, byte >> shift & mask);
    return t;
}

}  // namespace

const Table& numbers_of_bytes(ElementType t) {
    static const Table e4m3 = make_table(kE4m3), e5m2 = make_table(kE5m2), e2m3 = make_table(kE2m3),
                       e3m2 = make_table(kE3m2), e2m1 = make_table(kE2m1);
    switch (t) {
        case ElementType::e4m3: return e4m3;
        case ElementType::e5m2: return e5m2;
        case ElementType::e2m3: return e2m3;
        case ElementType::e3m2: return e3m2;
        default: return e2m1;
    }
}

double decode_scale(u8 bits, bool e8m0) {
    if (!e8m0) return numbers_of_bytes(ElementType::e4m3)[bits & 0x7F];
    // 2^(bits - 127), which a double has as a normal number.
    if (bits == 0xFF) return std::numeric_limits<double>::quiet_NaN();
    return std::bit_cast<double>((u64{bits} + 1023 - 127) << 52);
}

}  // namespace ptxm
