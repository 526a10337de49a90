// cvt between integers of any width, f16, bf16, f32, f64 and tf32 (PTX ISA 9.7.9.21). ptx/scalar/convert_narrow.cpp has
// the packed 4-, 6- and 8-bit formats.
#include <limits>

#include "isa/handlers.hpp"
#include "machine/warp/lanes.hpp"
#include "numbers/single.hpp"
#include "ptx/scalar/convert_value.hpp"

namespace ptxm {

namespace {

struct IntType {
    u32 bits;
    bool is_signed;
};

bool integer_type(Ty ty, IntType& out) {
    switch (ty) {
        case Ty::b8:
        case Ty::u8_: out = {8, false}; return true;
        case Ty::s8: out = {8, true}; return true;
        case Ty::b16:
        case Ty::u16_: out = {16, false}; return true;
        case Ty::s16: out = {16, true}; return true;
        case Ty::b32:
        case Ty::u32_: out = {32, false}; return true;
        case Ty::s32: out = {32, true}; return true;
        case Ty::b64:
        case Ty::u64_: out = {64, false}; return true;
        case Ty::s64: out = {64, true}; return true;
        default: return false;
    }
}

i64 extend(u64 value, IntType t) {
    if (t.bits == 64) return static_cast<i64>(value);
    const u32 shift = 64 - t.bits;
    return t.is_signed ? static_cast<i64>(value << shift) >> shift : static_cast<i64>(value << shift >> shift);
}

u64 clamp_to(i64 value, IntType s, IntType d) {
    const bool huge = !s.is_signed && value < 0;  // a u64 above every s64
    const u64 high = d.bits == 64 ? (d.is_signed ? ~0ull >> 1 : ~0ull) : (u64{1} << (d.bits - d.is_signed)) - 1;
    const i64 low = d.is_signed ? static_cast<i64>(~0ull << (d.bits - 1)) : 0;
    if (!huge && value < low) return static_cast<u64>(low);
    if (huge || value > 0) return std::min(static_cast<u64>(value), high);
    return static_cast<u64>(value);
}

Flow int_to_int(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    IntType d{}, s{};
    integer_type(static_cast<Ty>(i.type), d);
    integer_type(static_cast<Ty>(i.type2), s);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(m >> l & 1)) continue;
        const i64 value = extend(read_lane(w, o[1], i.width_src, l), s);
        const u64 result = i.mods & kSat ? clamp_to(value, s, d) : static_cast<u64>(value);
        write_lane(w, o[0], i.width_dst, l, static_cast<u64>(extend(result, d)));
    }
    return Flow::next;
}

// A NaN gives zero, unless the source is f64 or the destination has 64 bits: then the most significant bit alone.
u64 integer_of_nan(const FloatFormat& source, IntType d) {
    return &source == &kF64 || d.bits == 64 ? u64{1} << (d.bits - 1) : 0;
}

Flow float_to_int(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const FloatFormat& source = *format_of(static_cast<Ty>(i.type2));
    IntType d{};
    integer_type(static_cast<Ty>(i.type), d);
    const double low = d.is_signed ? -std::ldexp(1.0, static_cast<int>(d.bits) - 1) : 0.0;
    const double high = std::ldexp(1.0, static_cast<int>(d.bits) - (d.is_signed ? 1 : 0));
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(m >> l & 1)) continue;
        double a = to_double(source, read_lane(w, o[1], i.width_src, l));
        if ((i.mods & kFtz) && &source == &kF32) a = flush(static_cast<float>(a));
        const double x = round_to_integral(a, i.mods);
        u64 value;
        if (x != x)
            value = integer_of_nan(source, d);
        else if (x < low)
            value = d.is_signed ? u64{1} << (d.bits - 1) : 0;
        else if (x >= high)
            value = d.bits == 64 && !d.is_signed ? ~0ull : (u64{1} << (d.bits - d.is_signed)) - 1;
        else
            value = d.is_signed ? static_cast<u64>(static_cast<i64>(x)) : static_cast<u64>(x);
        write_lane(w, o[0], i.width_dst, l, static_cast<u64>(extend(value, d)));
    }
    return Flow::next;
}

Flow int_to_float(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const FloatFormat& d = *format_of(static_cast<Ty>(i.type));
    IntType s{};
    integer_type(static_cast<Ty>(i.type2), s);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(m >> l & 1)) continue;
        const i64 value = extend(read_lane(w, o[1], i.width_src, l), s);
        Number n;
        n.negative = s.is_signed && value < 0;
        n.magnitude = n.negative ? 0 - static_cast<u64>(value) : static_cast<u64>(value);
        const u64 bits = encode(d, n, rounding_of(i.mods));
        write_lane(w, o[0], i.width_dst, l, i.mods & kSat ? saturate_bits(d, bits) : bits);
    }
    return Flow::next;
}

Flow float_to_float(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const FloatFormat &d = *format_of(static_cast<Ty>(i.type)), &s = *format_of(static_cast<Ty>(i.type2));
    // tf32 lies in the upper bits of an f32.
    const u32 shift = &d == &kTf32 ? 13 : 0;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(m >> l & 1)) continue;
        const u64 bits = read_lane(w, o[1], i.width_src, l) & (s.sign_bit() * 2 - 1);
        write_lane(w, o[0], i.width_dst, l, convert_value(s, d, bits, i.mods) << shift);
    }
    return Flow::next;
}

Handler exact_handler(Ty d, Ty s) {
    if (d == Ty::f64 && s == Ty::f32)
        return [](Warp& w, const Inst& i, u32 m) {
            return unary<double, float>(w, i, m, [](float a) { return static_cast<double>(a); });
        };
    if (d == Ty::f32 && s == Ty::bf16)
        return [](Warp& w, const Inst& i, u32 m) {
            return unary<float, u16>(w, i, m, [](u16 a) { return bf16_to_float(a); });
        };
    if (d == Ty::f32 && s == Ty::f16)
        return [](Warp& w, const Inst& i, u32 m) { return unary<float, u16>(w, i, m, half_to_float); };
    if (d == Ty::bf16 && s == Ty::f32)
        return [](Warp& w, const Inst& i, u32 m) { return unary<u16, float>(w, i, m, float_to_bf16); };
    if (d == Ty::f16 && s == Ty::f32)
        return [](Warp& w, const Inst& i, u32 m) { return unary<u16, float>(w, i, m, float_to_half); };
    return nullptr;
}

}  // namespace

// clang-format off
#define PTXM_OPS_convert(X) \
    X(cvt, conversion, convert)
// clang-format on

Handler bind_convert(const InstRecord& r) {
    const Ty d = static_cast<Ty>(r.type), s = static_cast<Ty>(r.type2);
    if (static_cast<Op>(r.op) != Op::cvt) return nullptr;
    IntType ignored{};
    const bool d_int = integer_type(d, ignored), s_int = integer_type(s, ignored);
    if (d_int && s_int) return int_to_int;
    if (d_int) return format_of(s) ? float_to_int : nullptr;
    if (s_int) return format_of(d) ? int_to_float : nullptr;
    // A register wider than its type is read lane by lane.
    const bool plain = r.mods == 0 &&
                       r.width_dst == (d == Ty::f64   ? 64
                                       : d == Ty::f32 ? 32
                                                      : 16) &&
                       r.width_src == (s == Ty::f64   ? 64
                                       : s == Ty::f32 ? 32
                                                      : 16);
    if (plain)
        if (Handler h = exact_handler(d, s)) return h;
    return format_of(d) && format_of(s) ? float_to_float : nullptr;
}

}  // namespace ptxm
