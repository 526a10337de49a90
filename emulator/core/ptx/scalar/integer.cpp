// Integer arithmetic and logic that has an operator in C, comparisons, predicates, moves of a whole register, selp.
// What has none is in integer_extended.cpp, and what looks at single bits, or moves bytes and parts, in bits.cpp. A row
// of integers and floating point, as add's, is in isa/bind.cpp.
#include <limits>
#include <type_traits>

#include "isa/handlers.hpp"
#include "machine/warp/lanes.hpp"
#include "ptx/scalar/compare.hpp"

namespace ptxm {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

template <class T>
T clamp_signed(i64 wide) {
    if (wide > std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
    if (wide < std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
    return static_cast<T>(wide);
}

template <class T, bool kMinus>
Flow add_sub(Warp& w, const Inst& i, u32 m) {
    if constexpr (std::is_same_v<T, i32>) {
        if (i.mods & kSat)
            return binary<T, T, T>(w, i, m, [](T a, T b) { return clamp_signed<T>(kMinus ? i64{a} - b : i64{a} + b); });
    }
    using U = Unsigned<T>;
    return binary<T, T, T>(w, i, m, [](T a, T b) { return static_cast<T>(kMinus ? U(U(a) - U(b)) : U(U(a) + U(b))); });
}

template <class T>
T high_product(T a, T b) {
    if constexpr (sizeof(T) == 8) {
        using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
        return static_cast<T>((Wide{a} * b) >> 64);
    } else {
        using Wide = std::conditional_t<std::is_signed_v<T>, i64, u64>;
        return static_cast<T>((Wide{a} * b) >> (8 * sizeof(T)));
    }
}

template <class T>
T low_product(T a, T b) {
    return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
}

template <class T>
struct Wider;
template <>
struct Wider<u16> {
    using type = u32;
};
template <>
struct Wider<std::int16_t> {
    using type = i32;
};
template <>
struct Wider<u32> {
    using type = u64;
};
template <>
struct Wider<i32> {
    using type = i64;
};

// Division by zero leaves an unspecified value in PTX; an H200 gives all ones, for the remainder too.
template <class T, bool kRemainder>
T divide(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>) {
        if (b == T{-1}) return kRemainder ? T{0} : static_cast<T>(Unsigned<T>(0) - Unsigned<T>(a));
    }
    return static_cast<T>(kRemainder ? a % b : a / b);
}

template <class T>
Handler arithmetic(Op op) {
    switch (op) {
        case Op::add: return add_sub<T, false>;
        case Op::sub: return add_sub<T, true>;
        case Op::mul_lo: return [](Warp& w, const Inst& i, u32 m) { return binary<T, T, T>(w, i, m, low_product<T>); };
        case Op::mul_hi: return [](Warp& w, const Inst& i, u32 m) { return binary<T, T, T>(w, i, m, high_product<T>); };
        case Op::mad_lo:
            return [](Warp& w, const Inst& i, u32 m) {
                return ternary<T, T, T, T>(w, i, m, [](T a, T b, T c) {
                    return static_cast<T>(Unsigned<T>(low_product(a, b)) + Unsigned<T>(c));
                });
            };
        case Op::mad_hi:
            return [](Warp& w, const Inst& i, u32 m) {
                if constexpr (std::is_same_v<T, i32>) {
                    if (i.mods & kSat)
                        return ternary<T, T, T, T>(
                            w, i, m, [](T a, T b, T c) { return clamp_signed<T>(i64{high_product(a, b)} + c); });
                }
                return ternary<T, T, T, T>(w, i, m, [](T a, T b, T c) {
                    return static_cast<T>(Unsigned<T>(high_product(a, b)) + Unsigned<T>(c));
                });
            };
        case Op::div: return [](Warp& w, const Inst& i, u32 m) { return binary<T, T, T>(w, i, m, divide<T, false>); };
        case Op::rem: return [](Warp& w, const Inst& i, u32 m) { return binary<T, T, T>(w, i, m, divide<T, true>); };
        case Op::min:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<T, T, T>(w, i, m, [](T a, T b) { return a < b ? a : b; });
            };
        case Op::max:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<T, T, T>(w, i, m, [](T a, T b) { return a > b ? a : b; });
            };
        case Op::abs:
            return [](Warp& w, const Inst& i, u32 m) {
                return unary<T, T>(w, i, m,
                                   [](T a) { return a < 0 ? static_cast<T>(Unsigned<T>(0) - Unsigned<T>(a)) : a; });
            };
        case Op::neg:
            return [](Warp& w, const Inst& i, u32 m) {
                return unary<T, T>(w, i, m, [](T a) { return static_cast<T>(Unsigned<T>(0) - Unsigned<T>(a)); });
            };
        case Op::shr:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<T, T, u32>(w, i, m, [](T a, u32 n) {
                    constexpr u32 bits = 8 * sizeof(T);
                    if (n >= bits) return static_cast<T>(std::is_signed_v<T> && a < 0 ? -1 : 0);
                    return static_cast<T>(a >> n);
                });
            };
        default: return nullptr;
    }
}

template <class T>
Handler widening(Op op) {
    using W = typename Wider<T>::type;
    if (op == Op::mul_wide)
        return [](Warp& w, const Inst& i, u32 m) {
            return binary<W, T, T>(w, i, m, [](T a, T b) { return static_cast<W>(W{a} * W{b}); });
        };
    if (op == Op::mad_wide)
        return [](Warp& w, const Inst& i, u32 m) {
            return ternary<W, T, T, W>(
                w, i, m, [](T a, T b, W c) { return static_cast<W>(Unsigned<W>(W{a} * W{b}) + Unsigned<W>(c)); });
        };
    return nullptr;
}

template <class T>
Handler bitwise(Op op) {
    switch (op) {
        case Op::mov: return [](Warp& w, const Inst& i, u32 m) { return unary<T, T>(w, i, m, [](T a) { return a; }); };
        case Op::and_:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<T, T, T>(w, i, m, [](T a, T b) { return static_cast<T>(a & b); });
            };
        case Op::or_:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<T, T, T>(w, i, m, [](T a, T b) { return static_cast<T>(a | b); });
            };
        case Op::xor_:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<T, T, T>(w, i, m, [](T a, T b) { return static_cast<T>(a ^ b); });
            };
        case Op::not_:
            return [](Warp& w, const Inst& i, u32 m) {
                return unary<T, T>(w, i, m, [](T a) { return static_cast<T>(~a); });
            };
        case Op::shl:
            return [](Warp& w, const Inst& i, u32 m) {
                return binary<T, T, u32>(w, i, m,
                                         [](T a, u32 n) { return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << n); });
            };
        case Op::selp:
            return [](Warp& w, const Inst& i, u32 m) {
                const i32* o = w.ops(i);
                const T *a = w.reg<T>(o[1]), *b = w.reg<T>(o[2]);
                const u32 p = w.pred(o[3]);
                alignas(32) T result[kLanes];
                for (u32 l = 0; l < kLanes; ++l) result[l] = p >> l & 1 ? a[l] : b[l];
                store_lanes(w.reg<T>(o[0]), result, m);
                return Flow::next;
            };
        default: return nullptr;
    }
}

// Predicates are one mask word: logic on them is logic on that word.
template <class F>
Flow pred_logic(Warp& w, const Inst& i, u32 m, F f) {
    const i32* o = w.ops(i);
    const u32 value = f(w.pred(o[1]), i.n_src > 1 ? w.pred(o[2]) : 0);
    w.pred(o[0]) = (w.pred(o[0]) & ~m) | (value & m);
    return Flow::next;
}

Handler predicate(Op op) {
    switch (op) {
        case Op::mov:
            return [](Warp& w, const Inst& i, u32 m) { return pred_logic(w, i, m, [](u32 a, u32) { return a; }); };
        case Op::and_:
            return
                [](Warp& w, const Inst& i, u32 m) { return pred_logic(w, i, m, [](u32 a, u32 b) { return a & b; }); };
        case Op::or_:
            return
                [](Warp& w, const Inst& i, u32 m) { return pred_logic(w, i, m, [](u32 a, u32 b) { return a | b; }); };
        case Op::xor_:
            return
                [](Warp& w, const Inst& i, u32 m) { return pred_logic(w, i, m, [](u32 a, u32 b) { return a ^ b; }); };
        case Op::not_:
            return [](Warp& w, const Inst& i, u32 m) { return pred_logic(w, i, m, [](u32 a, u32) { return ~a; }); };
        default: return nullptr;
    }
}

template <class T>
Flow compare(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i) + i.n_dst;
    const T *a = w.reg<T>(o[0]), *b = w.reg<T>(o[1]);
    const Cmp cmp = static_cast<Cmp>((i.mods & kCmpMask) >> kCmpShift);
    write_comparison(w, i, m, compared_lanes(cmp, a, b));
    return Flow::next;
}

using U128 = unsigned __int128;

}  // namespace

void write_comparison(Warp& w, const Inst& i, u32 mask, u32 bits) {
    const i32* o = w.ops(i);
    u32 first = bits, second = ~bits;
    if (i.n_src > 2) {
        u32 c = w.pred(o[i.n_dst + 2]);
        if (i.mods & kBoolNegated) c = ~c;
        switch ((i.mods & kBoolMask) >> kBoolShift) {
            case 0:
                first = bits & c;
                second = ~bits & c;
                break;
            case 1:
                first = bits | c;
                second = ~bits | c;
                break;
            default:
                first = bits ^ c;
                second = ~bits ^ c;
                break;
        }
    }
    const u32 results[2] = {first, second};
    for (u32 k = 0; k < i.n_dst; ++k)
        if (o[k] >= 0) w.pred(o[k]) = (w.pred(o[k]) & ~mask) | (results[k] & mask);
}

// clang-format off
#define PTXM_OPS_integer(X)                                                                                    \
    X(mov, integer, integer)                                                                                   \
    X(mul_lo, integer, integer, "mul.lo{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b")                               \
    X(mul_hi, integer, integer, "mul.hi{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b")                               \
    X(mul_wide, integer, integer)                                                                              \
    X(mad_lo, integer, integer, "mad.lo{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b, c")                            \
    X(mad_hi, integer, integer, "mad.hi{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b, c; mad.hi.sat.s32 d, a, b, c") \
    X(mad_wide, integer, integer)                                                                              \
    X(div, integer, integer, "div{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b")                                     \
    X(rem, integer, integer, "rem{.u16|.s16|.u32|.s32|.u64|.s64} d, a, b")                                     \
    X(and_, integer, integer, "and{.pred|.b16|.b32|.b64} d, a, b")                                             \
    X(or_, integer, integer, "or{.pred|.b16|.b32|.b64} d, a, b")                                               \
    X(xor_, integer, integer, "xor{.pred|.b16|.b32|.b64} d, a, b")                                             \
    X(not_, integer, integer, "not{.pred|.b16|.b32|.b64} d, a")                                                \
    X(shl, integer, integer, "shl{.b16|.b32|.b64|.u16|.s16|.u32|.s32|.u64|.s64} d, a, b:u32")                  \
    X(shr, integer, integer, "shr{.b16|.b32|.b64|.u16|.s16|.u32|.s32|.u64|.s64} d, a, b:u32")                  \
    X(selp, integer, integer)
// clang-format on

Handler bind_integer(const InstRecord& r) {
    const Op op = static_cast<Op>(r.op);
    const Ty ty = static_cast<Ty>(r.type);
    const auto compare_of = [&](auto zero) -> Handler { return compare<decltype(zero)>; };
    switch (ty) {
        case Ty::pred: return predicate(op);
        case Ty::b16:
        case Ty::u16_:
        case Ty::s16:
        case Ty::f16:
        case Ty::bf16: {
            if (op == Op::setp) return ty == Ty::s16 ? compare_of(std::int16_t{}) : compare_of(u16{});
            if (Handler h = bitwise<u16>(op)) return h;
            if (op == Op::mul_wide || op == Op::mad_wide)
                return ty == Ty::s16 ? widening<std::int16_t>(op) : widening<u16>(op);
            return ty == Ty::s16 ? arithmetic<std::int16_t>(op) : arithmetic<u16>(op);
        }
        case Ty::b32:
        case Ty::u32_:
        case Ty::s32:
        case Ty::f32:
        case Ty::f16x2:
        case Ty::bf16x2: {
            if (op == Op::setp) return ty == Ty::s32 ? compare_of(i32{}) : compare_of(u32{});
            if (Handler h = bitwise<u32>(op)) return h;
            if (op == Op::mul_wide || op == Op::mad_wide) return ty == Ty::s32 ? widening<i32>(op) : widening<u32>(op);
            return ty == Ty::s32 ? arithmetic<i32>(op) : arithmetic<u32>(op);
        }
        case Ty::b64:
        case Ty::u64_:
        case Ty::s64:
        case Ty::f64:
        case Ty::f32x2: {
            if (op == Op::setp) return ty == Ty::s64 ? compare_of(i64{}) : compare_of(u64{});
            if (Handler h = bitwise<u64>(op)) return h;
            return ty == Ty::s64 ? arithmetic<i64>(op) : arithmetic<u64>(op);
        }
        case Ty::b128:
            return op == Op::mov ? Handler{[](Warp& w, const Inst& i, u32 m) {
                return unary<U128, U128>(w, i, m, [](U128 a) { return a; });
            }}
                                 : nullptr;
        default: return nullptr;
    }
}

}  // namespace ptxm
