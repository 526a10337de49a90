// Arithmetic with .rz, .rm and .rp: f32, pairs of f32, f64 (PTX ISA 9.7.3).
#include <cfenv>

#include "isa/handlers.hpp"
#include "machine/warp/lanes.hpp"
#include "numbers/double_nan.hpp"
#include "numbers/rounding.hpp"
#include "numbers/single.hpp"

namespace ptxm {
namespace {

template <Op kOp, u32 kMode>
float apply(float a, float b, float c) {
    if constexpr (kOp == Op::add) return add_directed<kMode>(a, b);
    if constexpr (kOp == Op::sub) return add_directed<kMode>(a, -static_cast<double>(b));
    if constexpr (kOp == Op::mul) return mul_directed<kMode>(a, b);
    if constexpr (kOp == Op::fma) return fma_directed<kMode>(a, b, c);
    if constexpr (kOp == Op::div_f) return div_directed<kMode>(a, b);
    if constexpr (kOp == Op::rcp) return div_directed<kMode>(1.0f, a);
    return sqrt_directed<kMode>(a);
}

// A product is flushed by its size before rounding (ptx/scalar/floating.cpp, product_ftz).
template <Op kOp, u32 kMode>
float flushed(float a, float b, float c) {
    const float result = apply<kOp, kMode>(a, b, c);
    if constexpr (kOp == Op::mul)
        if (std::fabs(static_cast<double>(a) * static_cast<double>(b)) < 0x1p-126) return std::copysign(0.0f, result);
    return flush(result);
}

float saturated(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

template <Op kOp, u32 kMode, u32 kParts>
Flow directed(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const bool ftz = i.mods & kFtz, sat = i.mods & kSat;
    const float *a = w.reg<float>(o[1]), *b = i.n_src > 1 ? w.reg<float>(o[2]) : a,
                *c = i.n_src > 2 ? w.reg<float>(o[3]) : a;
    alignas(32) float result[kParts * kLanes];
    for (u32 k = 0; k < kParts * kLanes; ++k) {
        const float r =
            ftz ? flushed<kOp, kMode>(flush(a[k]), flush(b[k]), flush(c[k])) : apply<kOp, kMode>(a[k], b[k], c[k]);
        result[k] = sat ? saturated(r) : one_nan(r);
    }
    if constexpr (kParts == 2) {
        u64 packed[kLanes];
        std::memcpy(packed, result, sizeof packed);
        store_lanes(w.reg<u64>(o[0]), packed, m);
    } else {
        store_lanes(w.reg<float>(o[0]), result, m);
    }
    return Flow::next;
}

template <Op kOp, u32 kParts>
Handler with_mode(u32 mods) {
    switch (mods & 3) {
        case kRz: return directed<kOp, kRz, kParts>;
        case kRm: return directed<kOp, kRm, kParts>;
        default: return directed<kOp, kRp, kParts>;
    }
}

Handler single(Op op, u32 mods) {
    switch (op) {
        case Op::add: return with_mode<Op::add, 1>(mods);
        case Op::sub: return with_mode<Op::sub, 1>(mods);
        case Op::mul: return with_mode<Op::mul, 1>(mods);
        case Op::fma: return with_mode<Op::fma, 1>(mods);
        case Op::div_f: return with_mode<Op::div_f, 1>(mods);
        case Op::rcp: return with_mode<Op::rcp, 1>(mods);
        case Op::sqrt: return with_mode<Op::sqrt, 1>(mods);
        default: return nullptr;
    }
}

Handler pair(Op op, u32 mods) {
    switch (op) {
        case Op::add: return with_mode<Op::add, 2>(mods);
        case Op::sub: return with_mode<Op::sub, 2>(mods);
        case Op::mul: return with_mode<Op::mul, 2>(mods);
        case Op::fma: return with_mode<Op::fma, 2>(mods);
        default: return nullptr;
    }
}

// There is no wider type for f64: the host's rounding mode does it, one lane at a time, the operands hidden from the
// optimiser so that nothing moves out of the region where the mode is set.
template <class F>
double under_mode(int mode, double a, double b, double c, F f) {
    asm volatile("" : "+m"(a), "+m"(b), "+m"(c));
    std::fesetround(mode);
    asm volatile("" : "+m"(a), "+m"(b), "+m"(c));
    double r = f(a, b, c);
    asm volatile("" : "+m"(r));
    std::fesetround(FE_TONEAREST);
    return r;
}

template <class F, class Nan>
Flow directed_f64(Warp& w, const Inst& i, u32 m, F f, Nan nan) {
    constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    const i32* o = w.ops(i);
    const double *a = w.reg<double>(o[1]), *b = i.n_src > 1 ? w.reg<double>(o[2]) : a,
                 *c = i.n_src > 2 ? w.reg<double>(o[3]) : a;
    for (u32 l = 0; l < kLanes; ++l)
        if (m >> l & 1)
            w.reg<double>(o[0])[l] = nan(under_mode(modes[i.mods & 3], a[l], b[l], c[l], f), a[l], b[l], c[l]);
    return Flow::next;
}

Handler wide(Op op) {
    switch (op) {
        case Op::add:
            return [](Warp& w, const Inst& i, u32 m) {
                return directed_f64(
                    w, i, m, [](double a, double b, double) { return a + b; },
                    [](double r, double a, double b, double) { return keep_nan(r, b, a); });
            };
        case Op::sub:
            return [](Warp& w, const Inst& i, u32 m) {
                return directed_f64(
                    w, i, m, [](double a, double b, double) { return a - b; },
                    [](double r, double a, double b, double) { return keep_nan(r, b, a); });
            };
        case Op::mul:
            return [](Warp& w, const Inst& i, u32 m) {
                return directed_f64(
                    w, i, m, [](double a, double b, double) { return a * b; },
                    [](double r, double a, double b, double) { return keep_nan(r, b, a); });
            };
        case Op::div_f:
            return [](Warp& w, const Inst& i, u32 m) {
                return directed_f64(
                    w, i, m, [](double a, double b, double) { return a / b; },
                    [](double r, double a, double b, double) { return keep_nan(r, a, b); });
            };
        case Op::fma:
            return [](Warp& w, const Inst& i, u32 m) {
                return directed_f64(
                    w, i, m, [](double a, double b, double c) { return std::fma(a, b, c); },
                    [](double r, double a, double b, double c) { return keep_nan(r, b, c, a); });
            };
        case Op::rcp:
            return [](Warp& w, const Inst& i, u32 m) {
                return directed_f64(
                    w, i, m, [](double a, double, double) { return 1.0 / a; },
                    [](double r, double a, double, double) { return keep_nan(r, a); });
            };
        case Op::sqrt:
            return [](Warp& w, const Inst& i, u32 m) {
                return directed_f64(
                    w, i, m, [](double a, double, double) { return std::sqrt(a); },
                    [](double r, double a, double, double) { return keep_nan(r, a); });
            };
        default: return nullptr;
    }
}

}  // namespace

Handler bind_directed(const InstRecord& r) {
    if ((r.mods & 3) == kRn) return nullptr;
    switch (static_cast<Ty>(r.type)) {
        case Ty::f32: return single(static_cast<Op>(r.op), r.mods);
        case Ty::f32x2: return pair(static_cast<Op>(r.op), r.mods);
        case Ty::f64: return wide(static_cast<Op>(r.op));
        default: return nullptr;
    }
}

}  // namespace ptxm
