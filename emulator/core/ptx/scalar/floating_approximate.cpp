// The approximate functions (.approx, .full: PTX ISA 9.7.3, 9.7.4), as ptxas makes them of the multi-function unit's
// for sm_90 and sm_100: what it scales lies outside the unit's domain, which ends at denormals.
#include <cstring>

#include "isa/handlers.hpp"
#include "machine/warp/lanes.hpp"
#include "numbers/formats.hpp"
#include "numbers/mufu.hpp"
#include "numbers/rounding.hpp"
#include "numbers/single.hpp"

namespace ptxm {
namespace {

constexpr float kLeastNormal = 0x1p-126f, kLargeDivisor = 0x1p126f;

template <u32 (*kFunction)(u32)>
float of(float x) {
    return std::bit_cast<float>(kFunction(std::bit_cast<u32>(x)));
}

bool denormal(float x) { return std::fabs(x) < kLeastNormal; }

template <class F>
Flow each_lane(Warp& w, const Inst& i, u32 m, F f) {
    const i32* o = w.ops(i);
    const float* a = w.reg<float>(o[1]);
    float* d = w.reg<float>(o[0]);
    for (u32 l = 0; l < kLanes; ++l)
        if (m >> l & 1) d[l] = f(a[l]);
    return Flow::next;
}

// Without .ftz an argument below that of the least normal result is halved, and what comes of it squared.
Flow ex2(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const u32* x = w.reg<u32>(o[1]);
    alignas(64) u32 scaled[kLanes], result[kLanes];
    u32 halved = 0;
    if (!(i.mods & kFtz)) {
        for (u32 l = 0; l < kLanes; ++l) {
            const float value = std::bit_cast<float>(x[l]);
            scaled[l] = std::bit_cast<u32>(value < -126.0f ? value * 0.5f : value);
            halved |= scaled[l] ^ x[l];
        }
    }
    mufu::ex2(halved ? scaled : x, result);
    if (halved) {
        for (u32 l = 0; l < kLanes; ++l) {
            const float root = std::bit_cast<float>(result[l]);
            result[l] = std::bit_cast<float>(x[l]) < -126.0f ? std::bit_cast<u32>(root * root) : result[l];
        }
    }
    store_lanes(w.reg<u32>(o[0]), result, m);
    return Flow::next;
}

Flow lg2(Warp& w, const Inst& i, u32 m) {
    if (i.mods & kFtz) return each_lane(w, i, m, [](float a) { return of<mufu::lg2>(a); });
    return each_lane(
        w, i, m, [](float a) { return one_nan(denormal(a) ? of<mufu::lg2>(a * 0x1p24f) - 24.0f : of<mufu::lg2>(a)); });
}

struct Lanes {
    alignas(64) float value[kLanes];
};

Lanes reciprocals(const Lanes& x) {
    Lanes result;
    u32 bits[kLanes], found[kLanes];
    std::memcpy(bits, x.value, sizeof bits);
    mufu::rcp(bits, found);
    std::memcpy(result.value, found, sizeof found);
    return result;
}

// What a divisor is multiplied by before its reciprocal is taken.
template <bool kFlush, bool kFull>
float scale_of(float divisor) {
    const float magnitude = std::fabs(divisor);
    return kFull && magnitude > kLargeDivisor ? 0.25f : !kFlush && magnitude < kLeastNormal ? 0x1p24f : 1.0f;
}

template <bool kFlush>
Flow rcp(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const float* a = w.reg<float>(o[1]);
    Lanes scaled;
    for (u32 l = 0; l < kLanes; ++l) scaled.value[l] = kFlush ? a[l] : a[l] * scale_of<false, true>(a[l]);
    Lanes result = reciprocals(scaled);
    if constexpr (!kFlush)
        for (u32 l = 0; l < kLanes; ++l) result.value[l] = one_nan(result.value[l] * scale_of<false, true>(a[l]));
    store_lanes(w.reg<float>(o[0]), result.value, m);
    return Flow::next;
}

template <u32 (*kFunction)(u32)>
Flow root(Warp& w, const Inst& i, u32 m, float back) {
    if (i.mods & kFtz) return each_lane(w, i, m, [](float a) { return of<kFunction>(a); });
    return each_lane(w, i, m, [back](float a) {
        return one_nan(denormal(a) ? of<kFunction>(a * 0x1p24f) * back : of<kFunction>(a));
    });
}

// The argument in turns is truncated; 1 / (2 pi) is one float.
template <u32 (*kFunction)(u32)>
Flow periodic(Warp& w, const Inst& i, u32 m) {
    return each_lane(w, i, m,
                     [](float a) { return of<kFunction>(mul_directed<kRz>(a, std::bit_cast<float>(0x3E22F983u))); });
}

// .approx multiplies by the divisor's reciprocal; .full brings a divisor beyond 2^126 back first.
template <bool kFlush, bool kFull>
Flow quotient(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const float *a = w.reg<float>(o[1]), *b = w.reg<float>(o[2]);
    Lanes dividend, divisor;
    for (u32 l = 0; l < kLanes; ++l) {
        const float scale = scale_of<kFlush, kFull>(b[l]);
        divisor.value[l] = b[l] * scale;
        dividend.value[l] = !kFlush ? a[l] * scale : scale == 1.0f ? flush(a[l]) : product_ftz(flush(a[l]), scale);
    }
    Lanes result = reciprocals(divisor);
    for (u32 l = 0; l < kLanes; ++l) {
        const float x = dividend.value[l], y = result.value[l];
        result.value[l] = one_nan(kFlush ? product_ftz(x, y) : x * y);
    }
    store_lanes(w.reg<float>(o[0]), result.value, m);
    return Flow::next;
}

Handler approximate(Op op, u32 mods) {
    const bool flushes = mods & kFtz;
    switch (op) {
        case Op::ex2: return ex2;
        case Op::lg2: return lg2;
        case Op::rcp: return flushes ? rcp<true> : rcp<false>;
        case Op::rsqrt: return [](Warp& w, const Inst& i, u32 m) { return root<mufu::rsqrt>(w, i, m, 0x1p12f); };
        case Op::sqrt: return [](Warp& w, const Inst& i, u32 m) { return root<mufu::sqrt>(w, i, m, 0x1p-12f); };
        case Op::sin: return periodic<mufu::sin>;
        case Op::cos: return periodic<mufu::cos>;
        case Op::tanh:
            return [](Warp& w, const Inst& i, u32 m) {
                return each_lane(w, i, m, [](float a) { return of<mufu::tanh>(a); });
            };
        case Op::div_f:
            if (mods & kFull) return flushes ? quotient<true, true> : quotient<false, true>;
            return flushes ? quotient<true, false> : quotient<false, false>;
        default: return nullptr;
    }
}

// rcp.approx.ftz.f64, rsqrt.approx.ftz.f64: the upper words alone are read and written (PTX ISA 9.7.3.16, 9.7.3.20).
template <u32 (*kFunction)(u32)>
Flow upper_word(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const u64* a = w.reg<u64>(o[1]);
    u64* d = w.reg<u64>(o[0]);
    for (u32 l = 0; l < kLanes; ++l)
        if (m >> l & 1) d[l] = static_cast<u64>(kFunction(static_cast<u32>(a[l] >> 32))) << 32;
    return Flow::next;
}

struct TruncatedHalf {
    static float widen(u16 x) { return half_to_float(x); }
    static u16 narrow(float x) {
        const u16 nearest = float_to_half(x);
        return std::fabs(x) < 65536.0f && std::fabs(half_to_float(nearest)) > std::fabs(x) ? nearest - 1 : nearest;
    }
    static constexpr u16 kLeastNormal = 0x0400;
};
struct TruncatedBfloat {
    static float widen(u16 x) { return bf16_to_float(x); }
    static u16 narrow(float x) { return static_cast<u16>(std::bit_cast<u32>(x) >> 16); }
    static constexpr u16 kLeastNormal = 0x0080;
};

// Of 16-bit types: the function of f32, truncated.
template <class N, u32 kParts, Op kOp>
Flow narrow(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const bool ftz = i.mods & kFtz;
    const auto flushed = [ftz](u16 x) -> u16 { return ftz && (x & 0x7FFF) < N::kLeastNormal ? x & 0x8000 : x; };
    const u16* a = w.reg<u16>(o[1]);
    alignas(64) u32 x[kParts * kLanes], y[kParts * kLanes];
    for (u32 k = 0; k < kParts * kLanes; ++k) x[k] = std::bit_cast<u32>(N::widen(flushed(a[k])));
    if constexpr (kOp == Op::ex2)
        for (u32 part = 0; part < kParts; ++part) mufu::ex2(x + part * kLanes, y + part * kLanes);
    else
        for (u32 k = 0; k < kParts * kLanes; ++k) y[k] = mufu::tanh(x[k]);
    alignas(64) u16 result[kParts * kLanes];
    for (u32 k = 0; k < kParts * kLanes; ++k) result[k] = flushed(N::narrow(std::bit_cast<float>(y[k])));
    using Element = std::conditional_t<kParts == 2, u32, u16>;
    alignas(64) Element packed[kLanes];
    std::memcpy(packed, result, sizeof packed);
    store_lanes(w.reg<Element>(o[0]), packed, m);
    return Flow::next;
}

template <class N, u32 kParts>
Handler narrow(Op op) {
    return op == Op::ex2 ? narrow<N, kParts, Op::ex2> : op == Op::tanh ? narrow<N, kParts, Op::tanh> : nullptr;
}

}  // namespace

// clang-format off
#define PTXM_OPS_approximate(X)                                                                    \
    X(ex2, transcendental, approximate, "ex2.approx[.ftz]{.f32|.f16|.bf16|.f16x2|.bf16x2} d, a")   \
    X(lg2, transcendental, approximate, "lg2.approx[.ftz].f32 d, a")                               \
    X(tanh, transcendental, approximate, "tanh.approx[.ftz]{.f32|.f16|.bf16|.f16x2|.bf16x2} d, a") \
    X(sin, transcendental, approximate, "sin.approx[.ftz].f32 d, a")                               \
    X(cos, transcendental, approximate, "cos.approx[.ftz].f32 d, a")
// clang-format on

Handler bind_approximate(const InstRecord& r) {
    const Op op = static_cast<Op>(r.op);
    switch (op) {
        case Op::ex2:
        case Op::lg2:
        case Op::rcp:
        case Op::rsqrt:
        case Op::sqrt:
        case Op::sin:
        case Op::cos:
        case Op::tanh:
        case Op::div_f: break;
        default: return nullptr;
    }
    if (!(r.mods & (kApprox | kFull))) return nullptr;
    switch (static_cast<Ty>(r.type)) {
        case Ty::f32: return approximate(op, r.mods);
        case Ty::f64:
            return op == Op::rcp     ? upper_word<mufu::rcp_double>
                   : op == Op::rsqrt ? upper_word<mufu::rsqrt_double>
                                     : nullptr;
        case Ty::f16: return narrow<TruncatedHalf, 1>(op);
        case Ty::bf16: return narrow<TruncatedBfloat, 1>(op);
        case Ty::f16x2: return narrow<TruncatedHalf, 2>(op);
        case Ty::bf16x2: return narrow<TruncatedBfloat, 2>(op);
        default: return nullptr;
    }
}

}  // namespace ptxm
