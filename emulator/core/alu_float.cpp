// Floating-point arithmetic: f32, f64, and pairs of f32.
#include "handlers.hpp"
#include "lanes.hpp"

namespace ptxm {
namespace {

float maybe_flush(float x, bool ftz) { return ftz ? flush(x) : x; }
float saturate(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

template <bool kFlush, class F>
Flow f32_binary(Warp& w, const Inst& i, u32 m, F f) {
    if (i.mods & kSat)
        return binary<float, float, float>(w, i, m, [f](float a, float b) {
            return kFlush ? saturate(flush(f(flush(a), flush(b)))) : saturate(f(a, b));
        });
    return binary<float, float, float>(
        w, i, m, [f](float a, float b) { return kFlush ? flush(f(flush(a), flush(b))) : f(a, b); });
}

template <class F>
Flow f32_binary(Warp& w, const Inst& i, u32 m, F f) {
    return i.mods & kFtz ? f32_binary<true>(w, i, m, f) : f32_binary<false>(w, i, m, f);
}

// min and max return the other operand for one NaN, the canonical NaN for two; .NaN propagates one.
template <bool kMax>
float extreme(float a, float b, bool propagate) {
    const float canonical = std::bit_cast<float>(0x7FFFFFFFu);
    if (propagate && (a != a || b != b)) return canonical;
    if (a != a) return b != b ? canonical : b;
    if (b != b) return a;
    if (a == b) return kMax ? (std::signbit(a) ? b : a) : (std::signbit(a) ? a : b);
    return (kMax ? a > b : a < b) ? a : b;
}

// Without NaN handling the compiler turns this into one vector instruction a vector; the general form covers the rest.
template <bool kMax>
Flow f32_extreme(Warp& w, const Inst& i, u32 m) {
    const bool propagate = i.mods & kNan, ftz = i.mods & kFtz;
    if (i.n_src == 3)
        return ternary<float, float, float, float>(w, i, m, [=](float a, float b, float c) {
            return extreme<kMax>(extreme<kMax>(maybe_flush(a, ftz), maybe_flush(b, ftz), propagate),
                                 maybe_flush(c, ftz), propagate);
        });
    return binary<float, float, float>(
        w, i, m, [=](float a, float b) { return extreme<kMax>(maybe_flush(a, ftz), maybe_flush(b, ftz), propagate); });
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
        return kFlush ? flush(__builtin_fmaf(flush(a), flush(b), flush(c))) : __builtin_fmaf(a, b, c);
    });
}

template <class F>
Flow f32_unary(Warp& w, const Inst& i, u32 m, F f) {
    const bool ftz = i.mods & kFtz;
    return unary<float, float>(w, i, m, [=](float a) { return maybe_flush(f(maybe_flush(a, ftz)), ftz); });
}

Flow ex2_f32(Warp& w, const Inst& i, u32 m) {
    if (i.mods & kFtz) return unary<float, float>(w, i, m, [](float a) { return flush(exp2_approx(flush(a))); });
    return unary<float, float>(w, i, m, exp2_approx);
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
                return f32_binary(w, i, m, [](float a, float b) { return a * b; });
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
        case Op::ex2: return ex2_f32;
        case Op::lg2:
            return [](Warp& w, const Inst& i, u32 m) {
                return f32_unary(w, i, m,
                                 [](float a) { return static_cast<float>(std::log2(static_cast<double>(a))); });
            };
        case Op::rcp:
            return [](Warp& w, const Inst& i, u32 m) { return f32_unary(w, i, m, [](float a) { return 1.0f / a; }); };
        case Op::rsqrt:
            return [](Warp& w, const Inst& i, u32 m) {
                return f32_unary(w, i, m,
                                 [](float a) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); });
            };
        case Op::sqrt:
            return
                [](Warp& w, const Inst& i, u32 m) { return f32_unary(w, i, m, [](float a) { return std::sqrt(a); }); };
        default: return nullptr;
    }
}

Handler f64_handler(Op op) {
    switch (op) {
        case Op::add:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<double, double, double>(w, i, m, [](double a, double b) { return a + b; });
            };
        case Op::sub:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<double, double, double>(w, i, m, [](double a, double b) { return a - b; });
            };
        case Op::mul:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<double, double, double>(w, i, m, [](double a, double b) { return a * b; });
            };
        case Op::div_f:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<double, double, double>(w, i, m, [](double a, double b) { return a / b; });
            };
        case Op::fma:
            return [](Warp& w, const Inst& i, u32 m) {
                return ternary<double, double, double, double>(
                    w, i, m, [](double a, double b, double c) { return std::fma(a, b, c); });
            };
        case Op::neg:
            return [](Warp& w, const Inst& i, u32 m) {
                return unary<double, double>(w, i, m, [](double a) { return -a; });
            };
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
        result[k] = kFlush ? flush(f(flush(a[k]), flush(b[k]), flush(c[k]))) : f(a[k], b[k], c[k]);
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
bool compare_one(Cmp cmp, T a, T b) {
    const bool unordered = a != a || b != b;
    switch (cmp) {
        case Cmp::eq: return a == b;
        case Cmp::ne: return !unordered && a != b;
        case Cmp::lt: return a < b;
        case Cmp::le: return a <= b;
        case Cmp::gt: return a > b;
        case Cmp::ge: return a >= b;
        case Cmp::equ: return unordered || a == b;
        case Cmp::neu: return unordered || a != b;
        case Cmp::ltu: return unordered || a < b;
        case Cmp::leu: return unordered || a <= b;
        case Cmp::gtu: return unordered || a > b;
        case Cmp::geu: return unordered || a >= b;
        case Cmp::num: return !unordered;
        case Cmp::nan: return unordered;
    }
    return false;
}

template <class T>
Flow compare_float(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i) + i.n_dst;
    const T *a = w.reg<T>(o[0]), *b = w.reg<T>(o[1]);
    const Cmp cmp = static_cast<Cmp>((i.mods & kCmpMask) >> kCmpShift);
    u32 bits = 0;
    for (u32 l = 0; l < kLanes; ++l) {
        T x = a[l], y = b[l];
        if constexpr (sizeof(T) == 4) {
            if (i.mods & kFtz) {
                x = flush(x);
                y = flush(y);
            }
        }
        bits |= static_cast<u32>(compare_one(cmp, x, y)) << l;
    }
    write_comparison(w, i, m, bits);
    return Flow::next;
}

}  // namespace

Handler bind_float(const InstRecord& r) {
    const Op op = static_cast<Op>(r.op);
    switch (static_cast<Ty>(r.type)) {
        case Ty::f32: return op == Op::setp ? compare_float<float> : f32_handler(op, r.mods);
        case Ty::f64: return op == Op::setp ? compare_float<double> : f64_handler(op);
        case Ty::f32x2: return pair_handler(op);
        default: return nullptr;
    }
}

}  // namespace ptxm
