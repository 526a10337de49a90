// Integer arithmetic that has no operator in C: sad, mul24 and mad24, chains of carries, dp4a and dp2a, slct, pairs of
// 16-bit integers (PTX ISA 9.7.1, 9.7.2, 9.7.7). What has one is in integer.cpp; single bits and bytes are in bits.cpp.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "isa/handlers.hpp"
#include "machine/warp/lanes.hpp"
#include "numbers/single.hpp"

namespace ptxm {
namespace {

template <class T>
T absolute_difference(T a, T b) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(a > b ? U(U(a) - U(b)) : U(U(b) - U(a)));
}

// A 24-bit product has 48 bits; .lo is its low 32, .hi its high 32.
template <class T>
T product24(T a, T b, bool high) {
    i64 x = a, y = b;
    if constexpr (std::is_signed_v<T>) {
        x = static_cast<i64>(static_cast<u64>(x) << 40) >> 40;
        y = static_cast<i64>(static_cast<u64>(y) << 40) >> 40;
    } else {
        x &= 0xFFFFFF;
        y &= 0xFFFFFF;
    }
    return static_cast<T>(high ? (x * y) >> 16 : x * y);
}

template <class T>
Handler sums(Op op) {
    using U = std::make_unsigned_t<T>;
    if (op == Op::sad)
        return [](Warp& w, const Inst& i, u32 m) {
            return ternary<T, T, T, T>(
                w, i, m, [](T a, T b, T c) { return static_cast<T>(U(c) + U(absolute_difference(a, b))); });
        };
    return nullptr;
}

template <class T>
Handler words(Op op) {
    switch (op) {
        case Op::mul24_lo:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<T, T, T>(w, i, m, [](T a, T b) { return product24(a, b, false); });
            };
        case Op::mul24_hi:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<T, T, T>(w, i, m, [](T a, T b) { return product24(a, b, true); });
            };
        case Op::mad24_lo:
        case Op::mad24_hi:
            return [](Warp& w, const Inst& i, u32 m) {
                const bool high = static_cast<Op>(i.op) == Op::mad24_hi, sat = i.mods & kSat;
                return ternary<T, T, T, T>(w, i, m, [=](T a, T b, T c) {
                    const i64 sum = i64{product24(a, b, high)} + c;
                    return static_cast<T>(
                        sat ? std::clamp<i64>(sum, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()) : sum);
                });
            };
        default: return nullptr;
    }
}

// add.cc, addc, sub.cc, subc, mad.cc, madc. Destinations: d, then CC.CF with .cc; sources end with CC.CF for the c
// forms. PTX ISA 9.7.2 calls CC.CF the borrow of a subtraction. What ptxas makes of sub.cc and subc is a + ~b + 1 and
// a + ~b + CC.CF: the flag is the carry of that sum, which is set where nothing is borrowed. It shows where an addition
// follows a subtraction, or the reverse; CGBN relies on it.
template <class U>
Flow carrying(Warp& w, const Inst& i, u32 m) {
    using Wide = unsigned __int128;
    const i32* o = w.ops(i);
    const i32* s = o + i.n_dst;
    const Op op = static_cast<Op>(i.op);
    const bool mad = op == Op::carry_mad_lo || op == Op::carry_mad_hi;
    const U *a = w.reg<U>(s[0]), *b = w.reg<U>(s[1]), *c = mad ? w.reg<U>(s[2]) : a;
    const bool subtracts = op == Op::carry_sub;
    const u32 carry_in = i.mods & kCarryIn ? w.pred(s[mad ? 3 : 2]) : subtracts ? ~0u : 0;
    const bool is_signed = static_cast<Ty>(i.type) == Ty::s32 || static_cast<Ty>(i.type) == Ty::s64;
    alignas(32) U result[kLanes];
    u32 carry_out = 0;
    for (u32 l = 0; l < kLanes; ++l) {
        const Wide in = carry_in >> l & 1;
        Wide x = a[l], y = b[l];
        if (mad) {
            using S = std::make_signed_t<U>;
            const Wide product =
                is_signed ? static_cast<Wide>(static_cast<__int128>(static_cast<S>(a[l])) * static_cast<S>(b[l]))
                          : x * y;
            x = static_cast<U>(op == Op::carry_mad_hi ? product >> (8 * sizeof(U)) : product);
            y = c[l];
        }
        if (subtracts) y = static_cast<U>(~y);
        const Wide r = x + y + in;
        result[l] = static_cast<U>(r);
        carry_out |= static_cast<u32>(r >> (8 * sizeof(U)) & 1) << l;
    }
    store_lanes(w.reg<U>(o[0]), result, m);
    if (i.mods & kCarryOut) w.pred(o[1]) = (w.pred(o[1]) & ~m) | (carry_out & m);
    return Flow::next;
}

i32 part_of(u32 word, u32 index, u32 bits, bool is_signed) {
    const u32 raw = word >> (index * bits) << (32 - bits);
    return is_signed ? static_cast<i32>(raw) >> (32 - bits) : static_cast<i32>(raw >> (32 - bits));
}

// dp4a, dp2a d, a, b, c: type is that of a, type2 that of b; dp2a takes two bytes of b, the upper two when immediate
// is 1.
Flow dot_product(Warp& w, const Inst& i, u32 m) {
    const bool four = static_cast<Op>(i.op) == Op::dp4a, signed_a = static_cast<Ty>(i.type) == Ty::s32,
               signed_b = static_cast<Ty>(i.type2) == Ty::s32;
    const u32 n = four ? 4 : 2, bits = four ? 8 : 16, first = four ? 0 : static_cast<u32>(i.immediate) * 2;
    return ternary<u32, u32, u32, u32>(w, i, m, [=](u32 a, u32 b, u32 c) {
        for (u32 k = 0; k < n; ++k)
            c += static_cast<u32>(part_of(a, k, bits, signed_a)) * static_cast<u32>(part_of(b, first + k, 8, signed_b));
        return c;
    });
}

// slct d, a, b, c: a where c >= 0. immediate 1: c is f32, of which -0 counts as zero and a NaN selects b.
template <class T>
Flow select(Warp& w, const Inst& i, u32 m) {
    if (static_cast<Ty>(i.type2) == Ty::f32) {
        const bool ftz = i.mods & kFtz;
        return ternary<T, T, T, float>(w, i, m,
                                       [ftz](T a, T b, float c) { return (ftz ? flush(c) : c) >= 0.0f ? a : b; });
    }
    return ternary<T, T, T, i32>(w, i, m, [](T a, T b, i32 c) { return c >= 0 ? a : b; });
}

template <bool kMax>
Flow relu_extreme(Warp& w, const Inst& i, u32 m) {
    return binary<i32, i32, i32>(w, i, m,
                                 [](i32 a, i32 b) { return std::max(kMax ? std::max(a, b) : std::min(a, b), 0); });
}

template <class T, class F>
Flow halves(Warp& w, const Inst& i, u32 m, F f) {
    const i32* o = w.ops(i);
    const T *a = w.reg<T>(o[1]), *b = i.n_src > 1 ? w.reg<T>(o[2]) : a;
    alignas(32) T result[2 * kLanes];
    for (u32 k = 0; k < 2 * kLanes; ++k) result[k] = f(a[k], b[k]);
    alignas(32) u32 packed[kLanes];
    std::memcpy(packed, result, sizeof packed);
    store_lanes(w.reg<u32>(o[0]), packed, m);
    return Flow::next;
}

template <class T>
Handler half_pairs(Op op) {
    switch (op) {
        case Op::add:
            return [](Warp& w, const Inst& i, u32 m) {
                return halves<T>(w, i, m, [](T a, T b) { return static_cast<T>(a + b); });
            };
        case Op::min:
            return [](Warp& w, const Inst& i, u32 m) {
                const bool relu = i.mods & kRelu;
                return halves<T>(w, i, m,
                                 [relu](T a, T b) { return relu ? std::max<T>(std::min(a, b), 0) : std::min(a, b); });
            };
        case Op::max:
            return [](Warp& w, const Inst& i, u32 m) {
                const bool relu = i.mods & kRelu;
                return halves<T>(w, i, m,
                                 [relu](T a, T b) { return relu ? std::max<T>(std::max(a, b), 0) : std::max(a, b); });
            };
        default: return nullptr;
    }
}

Handler by_width(Ty ty, Op op) {
    switch (ty) {
        case Ty::u16_: return sums<u16>(op);
        case Ty::s16: return sums<std::int16_t>(op);
        case Ty::u32_: return op == Op::sad ? sums<u32>(op) : words<u32>(op);
        case Ty::s32: return op == Op::sad ? sums<i32>(op) : words<i32>(op);
        case Ty::u64_: return sums<u64>(op);
        case Ty::s64: return sums<i64>(op);
        case Ty::u16x2: return half_pairs<u16>(op);
        case Ty::s16x2: return half_pairs<std::int16_t>(op);
        default: return nullptr;
    }
}

}  // namespace

// clang-format off
#define PTXM_OPS_extra_integer(X)                                                                      \
    X(sad, integer, extra_integer, "sad{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b, c")                    \
    X(mul24_lo, integer, extra_integer, "mul24.lo{.u32|.s32} d, a, b")                                 \
    X(mul24_hi, integer, extra_integer, "mul24.hi{.u32|.s32} d, a, b")                                 \
    X(mad24_lo, integer, extra_integer, "mad24.lo{.u32|.s32} d, a, b, c")                              \
    X(mad24_hi, integer, extra_integer, "mad24.hi{.u32|.s32} d, a, b, c; mad24.hi.sat.s32 d, a, b, c") \
    X(carry_add, integer, extra_integer)                                                               \
    X(carry_sub, integer, extra_integer)                                                               \
    X(carry_mad_lo, integer, extra_integer)                                                            \
    X(carry_mad_hi, integer, extra_integer)                                                            \
    X(dp4a, integer, extra_integer, "dp4a{.u32|.s32}{.u32|.s32} d:b32, a:b32, b:b32, c:b32")           \
    X(dp2a, integer, extra_integer, "dp2a{.lo|.hi}{.u32|.s32}{.u32|.s32} d:b32, a:b32, b:b32, c:b32")  \
    X(slct, integer, extra_integer,                                                                    \
      "slct{.b16|.b32|.b64|.u16|.s16|.u32|.s32|.u64|.s64|.f32|.f64}.s32 d, a, b, c:s32; "              \
      "slct[.ftz]{.b16|.b32|.b64|.u16|.s16|.u32|.s32|.u64|.s64|.f32|.f64}.f32 d, a, b, c:f32")
// clang-format on

Handler bind_extra_integer(const InstRecord& r) {
    const Ty ty = static_cast<Ty>(r.type);
    const Op op = static_cast<Op>(r.op);
    switch (op) {
        case Op::carry_add:
        case Op::carry_sub:
        case Op::carry_mad_lo:
        case Op::carry_mad_hi: return r.width_src == 64 ? carrying<u64> : carrying<u32>;
        case Op::dp4a:
        case Op::dp2a: return dot_product;
        case Op::slct: return r.width_dst == 64 ? select<u64> : r.width_dst == 32 ? select<u32> : select<u16>;
        case Op::min:
        case Op::max:
            if (ty == Ty::s32 && (r.mods & kRelu)) return op == Op::max ? relu_extreme<true> : relu_extreme<false>;
            break;
        default: break;
    }
    return by_width(ty, op);
}

}  // namespace ptxm
