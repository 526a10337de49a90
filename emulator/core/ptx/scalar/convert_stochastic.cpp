// cvt.rs: two f32 to f16x2 or bf16x2, four to a packed 4-, 6- or 8-bit format, rounded by random bits that the kernel
// supplies (PTX ISA 9.7.9.21): away from zero where they carry out of the bits that the destination drops.
//
// What the ISA does not say is as it was observed on a B200 and published: of the four-element forms each pair of
// sources shares 16 random bits, the first of the pair taking them in reverse order.
#include "isa/handlers.hpp"
#include "ptx/scalar/convert_value.hpp"

namespace ptxm {
namespace {

using U128 = unsigned __int128;

// Whether `random` of `bits` bits, added behind the point, carries into the last place that `f` keeps of `n`.
bool carries(const FloatFormat& f, const Number& n, u32 random, u32 bits) {
    const i32 leading = n.exponent + 63 - std::countl_zero(n.magnitude);
    const i32 dropped = std::max(leading, 1 - f.bias) - static_cast<i32>(f.mantissa_bits) - n.exponent;
    if (dropped <= 0) return false;
    if (dropped > 64) return false;  // less than the least random bit
    const U128 one = U128{1} << dropped;
    return ((U128{n.magnitude} & (one - 1)) << bits) + (U128{random} << dropped) >= one << bits;
}

u64 convert(const FloatFormat& f, u32 value, u32 random, u32 bits, u32 mods) {
    Number n = decode(kF32, value);
    if ((mods & kRelu) && !n.nan && n.negative) n = Number{};
    Rounding r = Rounding::zero;
    if (n.magnitude && !n.nan && !n.infinite && carries(f, n, random, bits))
        r = n.negative ? Rounding::minus : Rounding::plus;
    return encode(f, n, r, mods & kSatfinite);
}

u32 reversed(u32 halfword) {
    u32 r = 0;
    for (u32 k = 0; k < 16; ++k) r |= (halfword >> k & 1) << (15 - k);
    return r;
}

Flow two(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const Ty d = static_cast<Ty>(i.type);
    const u32 bits = d == Ty::bf16x2 ? 16 : 13;
    const u32 *a = w.reg<u32>(o[1]), *b = w.reg<u32>(o[2]), *random = w.reg<u32>(o[3]);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(m >> l & 1)) continue;
        const u32 mask = (1u << bits) - 1;
        const u64 high = convert(*format_of(d), a[l], random[l] >> 16 & mask, bits, i.mods),
                  low = convert(*format_of(d), b[l], random[l] & mask, bits, i.mods);
        write_lane(w, o[0], 32, l, high << 16 | low);
    }
    return Flow::next;
}

Flow four(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const Ty d = static_cast<Ty>(i.type);
    const u32 width = d == Ty::e2m1x2 ? 4 : 8;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(m >> l & 1)) continue;
        const u32 random = w.reg<u32>(o[5])[l];
        u32 high = random >> 16, low = random & 0xFFFF;
        if (width == 4) {  // a byte of each half
            high = (random >> 24 & 0xFF) << 8 | (random >> 8 & 0xFF);
            low = (random >> 16 & 0xFF) << 8 | (random & 0xFF);
        }
        const u32 each[4] = {reversed(high), high, reversed(low), low};
        u64 packed = 0;
        for (u32 k = 0; k < 4; ++k)
            packed = packed << width | convert(*format_of(d), w.reg<u32>(o[1 + k])[l], each[k], 16, i.mods);
        write_lane(w, o[0], i.width_dst, l, packed);
    }
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_stochastic(X) \
    X(cvt_stochastic, conversion, stochastic)
// clang-format on

Handler bind_stochastic(const InstRecord& r) {
    if (static_cast<Op>(r.op) != Op::cvt_stochastic) return nullptr;
    return r.n_src == 3 ? two : four;
}

}  // namespace ptxm
