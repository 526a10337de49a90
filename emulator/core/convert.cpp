// cvt: integers of any width, f32 and f64, and packing two f32 into bf16x2 or f16x2.
#include <limits>

#include "handlers.hpp"
#include "lanes.hpp"

namespace ptxm {
namespace {

u64 read_lane(Warp& w, i32 unit, u32 width, u32 lane) {
    switch (width) {
        case 16: return w.reg<u16>(unit)[lane];
        case 32: return w.reg<u32>(unit)[lane];
        default: return w.reg<u64>(unit)[lane];
    }
}

void write_lane(Warp& w, i32 unit, u32 width, u32 lane, u64 value) {
    switch (width) {
        case 16: w.reg<u16>(unit)[lane] = static_cast<u16>(value); break;
        case 32: w.reg<u32>(unit)[lane] = static_cast<u32>(value); break;
        default: w.reg<u64>(unit)[lane] = value; break;
    }
}

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

Flow int_to_int(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    IntType d{}, s{};
    integer_type(static_cast<Ty>(i.type), d);
    integer_type(static_cast<Ty>(i.type2), s);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(m >> l & 1)) continue;
        const i64 value = extend(read_lane(w, o[1], i.width_src, l), s);
        write_lane(w, o[0], i.width_dst, l, static_cast<u64>(extend(static_cast<u64>(value), d)));
    }
    return Flow::next;
}

double round_to_integral(double x, u32 mode) {
    switch (mode & 3) {
        case kRn: return std::nearbyint(x);
        case kRz: return std::trunc(x);
        case kRm: return std::floor(x);
        default: return std::ceil(x);
    }
}

template <class F>
Flow float_to_int(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const F* a = w.reg<F>(o[1]);
    IntType d{};
    integer_type(static_cast<Ty>(i.type), d);
    const double low = d.is_signed ? -std::ldexp(1.0, static_cast<int>(d.bits) - 1) : 0.0;
    const double high = std::ldexp(1.0, static_cast<int>(d.bits) - (d.is_signed ? 1 : 0));
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(m >> l & 1)) continue;
        const double x = round_to_integral(static_cast<double>(a[l]), i.mods);
        u64 value;
        if (x != x)
            value = 0;
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

template <class F>
Flow int_to_float(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    IntType s{};
    integer_type(static_cast<Ty>(i.type2), s);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(m >> l & 1)) continue;
        const i64 value = extend(read_lane(w, o[1], i.width_src, l), s);
        w.reg<F>(o[0])[l] = s.is_signed ? static_cast<F>(value) : static_cast<F>(static_cast<u64>(value));
    }
    return Flow::next;
}

Flow f32_to_f32(Warp& w, const Inst& i, u32 m) {
    const bool ftz = i.mods & kFtz;
    const u32 mods = i.mods;
    return unary<float, float>(w, i, m, [=](float a) {
        float x = ftz ? flush(a) : a;
        if (mods & kRoundInt) x = static_cast<float>(round_to_integral(x, mods));
        if (mods & kSat) x = x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
        return x;
    });
}

// cvt.rn.bf16x2.f32 d, a, b: a in the upper half.
Flow f32_to_bf16x2(Warp& w, const Inst& i, u32 m) {
    const bool relu = i.mods & kRelu;
    return binary<u32, float, float>(w, i, m, [relu](float a, float b) {
        if (relu) {
            a = a < 0.0f ? 0.0f : a;
            b = b < 0.0f ? 0.0f : b;
        }
        return static_cast<u32>(float_to_bf16(a)) << 16 | float_to_bf16(b);
    });
}

}  // namespace

Handler bind_convert(const InstRecord& r) {
    const Ty d = static_cast<Ty>(r.type), s = static_cast<Ty>(r.type2);
    if (static_cast<Op>(r.op) == Op::cvt_pack) return d == Ty::bf16x2 && s == Ty::f32 ? f32_to_bf16x2 : nullptr;
    if (static_cast<Op>(r.op) != Op::cvt) return nullptr;
    IntType ignored{};
    const bool d_int = integer_type(d, ignored), s_int = integer_type(s, ignored);
    if (d_int && s_int) return r.mods & kSat ? nullptr : int_to_int;
    if (d_int && s == Ty::f32) return float_to_int<float>;
    if (d_int && s == Ty::f64) return float_to_int<double>;
    if (s_int && d == Ty::f32) return int_to_float<float>;
    if (s_int && d == Ty::f64) return int_to_float<double>;
    if (d == Ty::f32 && s == Ty::f32) return f32_to_f32;
    if (d == Ty::f64 && s == Ty::f32)
        return [](Warp& w, const Inst& i, u32 m) {
            return unary<double, float>(w, i, m, [](float a) { return static_cast<double>(a); });
        };
    if (d == Ty::f32 && s == Ty::f64)
        return [](Warp& w, const Inst& i, u32 m) {
            return unary<float, double>(w, i, m, [](double a) { return static_cast<float>(a); });
        };
    if (d == Ty::f32 && s == Ty::bf16)
        return [](Warp& w, const Inst& i, u32 m) {
            return unary<float, u16>(w, i, m, [](u16 a) { return bf16_to_float(a); });
        };
    if (d == Ty::bf16 && s == Ty::f32)
        return [](Warp& w, const Inst& i, u32 m) {
            return unary<u16, float>(w, i, m, [](float a) { return float_to_bf16(a); });
        };
    return nullptr;
}

}  // namespace ptxm
