// Floating-point arithmetic: f32, f64, and pairs of f32.
#include "isa/handlers.hpp"
#include "machine/warp/lanes.hpp"
#include "numbers/double_nan.hpp"
#include "numbers/formats.hpp"
#include "numbers/min_max.hpp"
#include "numbers/single.hpp"
#include "ptx/scalar/compare.hpp"

namespace ptxm {
namespace {

template <bool kFlush, class F>
Flow f32_binary(Warp& w, const Inst& i, u32 m, F f) {
    if (i.mods & kSat)
        return binary<float, float, float>(w, i, m, [f](float a, float b) {
            return kFlush ? saturate(flush(f(flush(a), flush(b)))) : saturate(f(a, b));
        });
    return binary<float, float, float>(
        w, i, m, [f](float a, float b) { return one_nan(kFlush ? flush(f(flush(a), flush(b))) : f(a, b)); });
}

template <class F>
Flow f32_binary(Warp& w, const Inst& i, u32 m, F f) {
    return i.mods & kFtz ? f32_binary<true>(w, i, m, f) : f32_binary<false>(w, i, m, f);
}

// The common forms have loops of their own.
template <bool kMax>
Flow f32_extreme(Warp& w, const Inst& i, u32 m) {
    const bool propagate = i.mods & kNan, ftz = i.mods & kFtz;
    const u32 mods = i.mods;
    if (i.n_src == 3 && !ftz && !(mods & (kAbs | kNan)))
        return ternary<float, float, float, float>(
            w, i, m, [](float a, float b, float c) { return extreme<kMax>(extreme<kMax>(a, b, false), c, false); });
    if (i.n_src == 3)
        return ternary<float, float, float, float>(w, i, m, [=](float a, float b, float c) {
            return extreme_of<kMax>(maybe_flush(a, ftz), maybe_flush(b, ftz), maybe_flush(c, ftz), mods);
        });
    if (mods & kXorsignAbs)
        return binary<float, float, float>(w, i, m, [=](float a, float b) {
            return extreme_of<kMax>(maybe_flush(a, ftz), maybe_flush(b, ftz), mods);
        });
    if (ftz)
        return binary<float, float, float>(
            w, i, m, [=](float a, float b) { return extreme<kMax>(flush(a), flush(b), propagate); });
    if (propagate)
        return binary<float, float, float>(w, i, m, [](float a, float b) { return extreme<kMax>(a, b, true); });
    return binary<float, float, float>(w, i, m, [](float a, float b) { return extreme<kMax>(a, b, false); });
}

template <bool kFlush>
Flow f32_fma(Warp& w, const Inst& i, u32 m) {
    const bool sat = i.mods & kSat;
    if (sat)
        return ternary<float, float, float, float>(w, i, m, [](float a, float b, float c) {
            return kFlush ? saturate(flush(__builtin_fmaf(flush(a), flush(b), flush(c))))
                          : saturate(__builtin_fmaf(a, b, c));
        });
    return ternary<float, float, float, float>(w, i, m, [](float a, float b, float c) {
        return one_nan(kFlush ? flush(__builtin_fmaf(flush(a), flush(b), flush(c))) : __builtin_fmaf(a, b, c));
    });
}

template <class F>
Flow f32_unary(Warp& w, const Inst& i, u32 m, F f) {
    const bool ftz = i.mods & kFtz;
    return unary<float, float>(w, i, m, [=](float a) { return one_nan(maybe_flush(f(maybe_flush(a, ftz)), ftz)); });
}

// copysign d, a, b: the sign of a on the magnitude of b (PTX ISA 9.7.3.2).
template <class U>
Flow sign_of(Warp& w, const Inst& i, u32 m) {
    constexpr U sign = U{1} << (8 * sizeof(U) - 1);
    return binary<U, U, U>(w, i, m, [](U a, U b) { return static_cast<U>((a & sign) | (b & ~sign)); });
}

// testp: the property in `immediate`: finite, infinite, number, notanumber, normal, subnormal. Zeros are normal.
template <const FloatFormat& kFormat, class U>
Flow test_property(Warp& w, const Inst& i, u32 m) {
    const U* a = w.reg<U>(w.ops(i)[1]);
    u32 bits = 0;
    for (u32 l = 0; l < kLanes; ++l) {
        const u64 field = a[l] & (kFormat.sign_bit() - 1), infinity = kFormat.exponent_mask(),
                  smallest = u64{1} << kFormat.mantissa_bits;
        const bool properties[] = {field<infinity, field == infinity, field <= infinity, field> infinity,
                                   field == 0 || (field < infinity && field >= smallest),
                                   field != 0 && field < smallest};
        bits |= static_cast<u32>(properties[i.immediate]) << l;
    }
    u32& p = w.pred(w.ops(i)[0]);
    p = (p & ~m) | (bits & m);
    return Flow::next;
}

Handler f32_handler(Op op, u32 mods) {
    switch (op) {
        case Op::add:
            return [](Warp& w, const Inst& i, u32 m) {
                return f32_binary(w, i, m, [](float a, float b) { return a + b; });
            };
        case Op::sub:
            return [](Warp& w, const Inst& i, u32 m) {
                return f32_binary(w, i, m, [](float a, float b) { return a - b; });
            };
        case Op::mul:
            return [](Warp& w, const Inst& i, u32 m) {
                if (i.mods & kFtz) return f32_binary<true>(w, i, m, product_ftz);
                return f32_binary<false>(w, i, m, [](float a, float b) { return a * b; });
            };
        case Op::div_f:
            return [](Warp& w, const Inst& i, u32 m) {
                return f32_binary(w, i, m, [](float a, float b) { return a / b; });
            };
        case Op::fma: return mods & kFtz ? f32_fma<true> : f32_fma<false>;
        case Op::min: return f32_extreme<false>;
        case Op::max: return f32_extreme<true>;
        case Op::abs:
            return
                [](Warp& w, const Inst& i, u32 m) { return f32_unary(w, i, m, [](float a) { return std::fabs(a); }); };
        case Op::neg:
            return [](Warp& w, const Inst& i, u32 m) { return f32_unary(w, i, m, [](float a) { return -a; }); };
        case Op::rcp:
            return [](Warp& w, const Inst& i, u32 m) { return f32_unary(w, i, m, [](float a) { return 1.0f / a; }); };
        case Op::sqrt:
            return
                [](Warp& w, const Inst& i, u32 m) { return f32_unary(w, i, m, [](float a) { return std::sqrt(a); }); };
        case Op::copysign: return sign_of<u32>;
        case Op::testp: return test_property<kF32, u32>;
        default: return nullptr;
    }
}

Handler f64_handler(Op op) {
    switch (op) {
        case Op::add:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<double, double, double>(w, i, m,
                                                      [](double a, double b) { return keep_nan(a + b, b, a); });
            };
        case Op::sub:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<double, double, double>(w, i, m,
                                                      [](double a, double b) { return keep_nan(a - b, b, a); });
            };
        case Op::mul:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<double, double, double>(w, i, m,
                                                      [](double a, double b) { return keep_nan(a * b, b, a); });
            };
        case Op::div_f:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<double, double, double>(w, i, m,
                                                      [](double a, double b) { return keep_nan(a / b, a, b); });
            };
        case Op::fma:
            return [](Warp& w, const Inst& i, u32 m) {
                return ternary<double, double, double, double>(
                    w, i, m, [](double a, double b, double c) { return keep_nan(std::fma(a, b, c), b, c, a); });
            };
        case Op::neg:
            return [](Warp& w, const Inst& i, u32 m) {
                return unary<double, double>(w, i, m, [](double a) { return keep_nan(-a, a); });
            };
        case Op::abs:
            return [](Warp& w, const Inst& i, u32 m) {
                return unary<double, double>(w, i, m, [](double a) { return keep_nan(std::fabs(a), a); });
            };
        case Op::min:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<double, double, double>(
                    w, i, m, [](double a, double b) { return keep_nan(extreme<false>(a, b, false), b, a); });
            };
        case Op::max:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<double, double, double>(
                    w, i, m, [](double a, double b) { return keep_nan(extreme<true>(a, b, false), b, a); });
            };
        case Op::rcp:
            return [](Warp& w, const Inst& i, u32 m) {
                return unary<double, double>(w, i, m, [](double a) { return keep_nan(1.0 / a, a); });
            };
        case Op::sqrt:
            return [](Warp& w, const Inst& i, u32 m) {
                return unary<double, double>(w, i, m, [](double a) { return keep_nan(std::sqrt(a), a); });
            };
        case Op::rsqrt:
            return [](Warp& w, const Inst& i, u32 m) {
                return unary<double, double>(w, i, m, [](double a) { return keep_nan(1.0 / std::sqrt(a), a); });
            };
        case Op::copysign: return sign_of<u64>;
        case Op::testp: return test_property<kF64, u64>;
        default: return nullptr;
    }
}

// f32x2: both halves of a 64-bit register, each as f32. In a unit pair the halves of a lane are adjacent words.
template <bool kFlush, class F>
Flow pairs(Warp& w, const Inst& i, u32 m, F f) {
    const i32* o = w.ops(i);
    const float *a = w.reg<float>(o[1]), *b = w.reg<float>(o[2]), *c = i.n_src > 2 ? w.reg<float>(o[3]) : a;
    alignas(32) float result[2 * kLanes];
    for (u32 k = 0; k < 2 * kLanes; ++k)
        result[k] = one_nan(kFlush ? flush(f(flush(a[k]), flush(b[k]), flush(c[k]))) : f(a[k], b[k], c[k]));
    u64 packed[kLanes];
    std::memcpy(packed, result, sizeof packed);
    store_lanes(w.reg<u64>(o[0]), packed, m);
    return Flow::next;
}

template <class F>
Flow pairs(Warp& w, const Inst& i, u32 m, F f) {
    return i.mods & kFtz ? pairs<true>(w, i, m, f) : pairs<false>(w, i, m, f);
}

Handler pair_handler(Op op) {
    switch (op) {
        case Op::add:
            return [](Warp& w, const Inst& i, u32 m) {
                return pairs(w, i, m, [](float a, float b, float) { return a + b; });
            };
        case Op::sub:
            return [](Warp& w, const Inst& i, u32 m) {
                return pairs(w, i, m, [](float a, float b, float) { return a - b; });
            };
        case Op::mul:
            return [](Warp& w, const Inst& i, u32 m) {
                return pairs(w, i, m, [](float a, float b, float) { return a * b; });
            };
        case Op::fma:
            return [](Warp& w, const Inst& i, u32 m) {
                return pairs(w, i, m, [](float a, float b, float c) { return __builtin_fmaf(a, b, c); });
            };
        default: return nullptr;
    }
}

template <class T>
u32 compare_lanes(Warp& w, const Inst& i) {
    const i32* o = w.ops(i) + i.n_dst;
    const T *a = w.reg<T>(o[0]), *b = w.reg<T>(o[1]);
    const Cmp cmp = static_cast<Cmp>((i.mods & kCmpMask) >> kCmpShift);
    if constexpr (std::is_same_v<T, float>) {
        if (i.mods & kFtz) {
            float x[kLanes], y[kLanes];
            for (u32 l = 0; l < kLanes; ++l) x[l] = flush(a[l]);
            for (u32 l = 0; l < kLanes; ++l) y[l] = flush(b[l]);
            return compared_lanes(cmp, x, y);
        }
    }
    return compared_lanes(cmp, a, b);
}

template <class T>
Flow compare_float(Warp& w, const Inst& i, u32 m) {
    write_comparison(w, i, m, compare_lanes<T>(w, i));
    return Flow::next;
}

template <class T>
Flow set_lanes(Warp& w, const Inst& i, u32 m) {
    const u32 bits = combine(w, i, compare_lanes<T>(w, i));
    write_set(w, i, m, &bits, 1);
    return Flow::next;
}

Handler set_handler(Ty compared) {
    switch (compared) {
        case Ty::u16_:
        case Ty::b16: return set_lanes<u16>;
        case Ty::s16: return set_lanes<std::int16_t>;
        case Ty::u32_:
        case Ty::b32: return set_lanes<u32>;
        case Ty::s32: return set_lanes<i32>;
        case Ty::u64_:
        case Ty::b64: return set_lanes<u64>;
        case Ty::s64: return set_lanes<i64>;
        case Ty::f32: return set_lanes<float>;
        case Ty::f64: return set_lanes<double>;
        default: return nullptr;
    }
}

}  // namespace

void write_set(Warp& w, const Inst& i, u32 mask, const u32* bits, u32 parts) {
    const i32 d = w.ops(i)[0];
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        const bool low = bits[0] >> l & 1, high = parts == 2 && (bits[1] >> l & 1);
        switch (static_cast<Ty>(i.type)) {
            case Ty::f32: w.reg<float>(d)[l] = low ? 1.0f : 0.0f; break;
            case Ty::f16: w.reg<u16>(d)[l] = low ? 0x3C00 : 0; break;
            case Ty::bf16: w.reg<u16>(d)[l] = low ? 0x3F80 : 0; break;
            case Ty::u16_:
            case Ty::s16: w.reg<u16>(d)[l] = low ? 0xFFFF : 0; break;
            case Ty::f16x2: w.reg<u32>(d)[l] = (low ? 0x3C00u : 0) | (high ? 0x3C000000u : 0); break;
            case Ty::bf16x2: w.reg<u32>(d)[l] = (low ? 0x3F80u : 0) | (high ? 0x3F800000u : 0); break;
            default:
                w.reg<u32>(d)[l] = parts == 2 ? (low ? 0xFFFFu : 0) | (high ? 0xFFFF0000u : 0) : low ? ~0u : 0;
                break;
        }
    }
}

// clang-format off
#define PTXM_OPS_float(X)                                       \
    X(copysign, floating, float, "copysign{.f32|.f64} d, a, b") \
    X(testp, floating, float, "testp{.finite|.infinite|.number|.notanumber|.normal|.subnormal}{.f32|.f64} d:pred, a")
// clang-format on

Handler bind_float(const InstRecord& r) {
    const Op op = static_cast<Op>(r.op);
    if (op == Op::set) return set_handler(static_cast<Ty>(r.type2));
    switch (static_cast<Ty>(r.type)) {
        case Ty::f32: return op == Op::setp ? compare_float<float> : f32_handler(op, r.mods);
        case Ty::f64: return op == Op::setp ? compare_float<double> : f64_handler(op);
        case Ty::f32x2: return pair_handler(op);
        default: return nullptr;
    }
}

}  // namespace ptxm
