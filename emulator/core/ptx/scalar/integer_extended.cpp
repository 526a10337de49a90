// The less common integer instructions: bit search and masks, 24-bit and carrying arithmetic, dot products, pairs of
// 16-bit integers (PTX ISA 9.7.1, 9.7.2, 9.7.7).
#include <algorithm>
#include <limits>
#include <type_traits>

#include "isa/handlers.hpp"
#include "machine/warp/lanes.hpp"
#include "numbers/single.hpp"

namespace ptxm {
namespace {

// fns d, mask, base, offset: the offset-th set bit at or above (below, for a negative offset) base; -1 for none.
u32 find_nth_set(u32 mask, u32 base, i32 offset) {
    i32 left = offset == 0 ? 1 : std::abs(offset);
    const i32 step = offset < 0 ? -1 : 1;
    for (i64 n = base; n >= 0 && n < 32; n += step) {
        if (!(mask >> n & 1)) {
            if (offset == 0) return ~0u;
            continue;
        }
        if (--left == 0) return static_cast<u32>(n);
    }
    return ~0u;
}

// bmsk d, a, b: b ones from bit a on. .clamp limits both to 32, .wrap takes them modulo 32.
u32 bit_mask(u32 a, u32 b, bool wrap) {
    const u32 from = wrap ? a & 31 : std::min(a, 32u), count = wrap ? b & 31 : std::min(b, 32u);
    return from >= 32 ? 0 : static_cast<u32>(((u64{1} << count) - 1) << from);
}

// szext d, a, b: the low b bits of a, sign- or zero-extended.
template <class T>
T extend_from(T a, u32 b, bool wrap) {
    const u32 n = wrap ? b & 31 : std::min(b, 32u);
    if (n == 0) return T{0};
    if (n == 32) return a;
    if constexpr (std::is_signed_v<T>) return static_cast<T>(static_cast<u32>(a) << (32 - n)) >> (32 - n);
    return a << (32 - n) >> (32 - n);
}

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
        case Op::szext:
            return [](Warp& w, const Inst& i, u32 m) {
                const bool wrap = i.immediate;
                return binary<T, T, u32>(w, i, m, [wrap](T a, u32 b) { return extend_from(a, b, wrap); });
            };
        default: return nullptr;
    }
}

// bfind: the most significant bit that differs from the sign; -1 for none. .shiftamt: how far to shift it to the top.
template <class T>
Flow find_top(Warp& w, const Inst& i, u32 m) {
    const bool shift = i.immediate;
    return unary<u32, T>(w, i, m, [shift](T a) {
        using U = std::make_unsigned_t<T>;
        const U x = std::is_signed_v<T> && a < 0 ? static_cast<U>(~a) : static_cast<U>(a);
        if (x == 0) return ~0u;
        const u32 top = 8 * sizeof(T) - 1 - static_cast<u32>(std::countl_zero(x));
        return shift ? static_cast<u32>(8 * sizeof(T) - 1) - top : top;
    });
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

template <class T>
Handler reversed(Op op) {
    if (op != Op::brev) return nullptr;
    return [](Warp& w, const Inst& i, u32 m) {
        return unary<T, T>(w, i, m, [](T a) {
            T result = 0;
            for (u32 k = 0; k < 8 * sizeof(T); ++k) result |= (a >> k & 1) << (8 * sizeof(T) - 1 - k);
            return result;
        });
    };
}

Flow insert_wide(Warp& w, const Inst& i, u32 m) {  // bfi.b64
    const i32* o = w.ops(i);
    const u64 *a = w.reg<u64>(o[1]), *b = w.reg<u64>(o[2]);
    const u32 *p = w.reg<u32>(o[3]), *n = w.reg<u32>(o[4]);
    alignas(32) u64 result[kLanes];
    for (u32 l = 0; l < kLanes; ++l) {
        const u32 position = p[l] & 0xFF, length = n[l] & 0xFF;
        const u64 ones = length >= 64 ? ~0ull : (u64{1} << length) - 1;
        result[l] = position >= 64 ? b[l] : (b[l] & ~(ones << position)) | ((a[l] & ones) << position);
    }
    store_lanes(w.reg<u64>(o[0]), result, m);
    return Flow::next;
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

// prmt with a mode: what the selector's low bits mean (PTX ISA 9.7.9.7). immediate: 1 f4e, 2 b4e, 3 rc8, 4 ecl, 5 ecr,
// 6 rc16.
u32 permuted_byte(u32 mode, u32 selector, u32 byte) {
    const u32 n = selector & 3;
    switch (mode) {
        case 1: return n + byte;
        case 2: return (n + 8 - byte) & 7;
        case 3: return n;
        case 4: return std::max(n, byte);
        case 5: return std::min(n, byte);
        default: return (n & 1) * 2 + (byte & 1);
    }
}

Flow permute_mode(Warp& w, const Inst& i, u32 m) {
    const u32 mode = static_cast<u32>(i.immediate);
    return ternary<u32, u32, u32, u32>(w, i, m, [mode](u32 a, u32 b, u32 selector) {
        const u64 source = u64{b} << 32 | a;
        u32 result = 0;
        for (u32 k = 0; k < 4; ++k)
            result |= static_cast<u32>(source >> (8 * permuted_byte(mode, selector, k)) & 0xFF) << (8 * k);
        return result;
    });
}

// mov between a register and its bytes; a byte lives in a 16-bit register.
template <class D>
Flow pack_bytes(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    alignas(32) D result[kLanes] = {};
    for (u32 k = 0; k < i.n_src; ++k) {
        const u16* s = w.reg<u16>(o[1 + k]);
        for (u32 l = 0; l < kLanes; ++l) result[l] = static_cast<D>(result[l] | static_cast<D>(s[l] & 0xFF) << (8 * k));
    }
    store_lanes(w.reg<D>(o[0]), result, m);
    return Flow::next;
}

template <class S>
Flow unpack_bytes(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    alignas(32) S source[kLanes];
    std::memcpy(source, w.reg<S>(o[i.n_dst]), sizeof source);
    for (u32 k = 0; k < i.n_dst; ++k) {
        if (o[k] < 0) continue;
        alignas(32) u16 result[kLanes];
        for (u32 l = 0; l < kLanes; ++l) result[l] = static_cast<u16>(source[l] >> (8 * k) & 0xFF);
        store_lanes(w.reg<u16>(o[k]), result, m);
    }
    return Flow::next;
}

using U128 = unsigned __int128;

// The 128-bit register and its 32-bit words; bytes and 8-bit registers.
Handler vector_move(Op op, u32 whole, u32 part) {
    if (op == Op::pack && part == 8) return whole == 32 ? pack_bytes<u32> : whole == 16 ? pack_bytes<u16> : nullptr;
    if (op == Op::unpack && part == 8)
        return whole == 32 ? unpack_bytes<u32> : whole == 16 ? unpack_bytes<u16> : nullptr;
    if (op == Op::pack && whole == 128 && part == 32)
        return [](Warp& w, const Inst& i, u32 m) {
            const i32* o = w.ops(i);
            alignas(32) U128 result[kLanes] = {};
            for (u32 k = 0; k < 4; ++k)
                for (u32 l = 0; l < kLanes; ++l) result[l] |= U128{w.reg<u32>(o[1 + k])[l]} << (32 * k);
            store_lanes(w.reg<U128>(o[0]), result, m);
            return Flow::next;
        };
    if (op == Op::unpack && whole == 128 && part == 32)
        return [](Warp& w, const Inst& i, u32 m) {
            const i32* o = w.ops(i);
            alignas(32) U128 source[kLanes];
            std::memcpy(source, w.reg<U128>(o[4]), sizeof source);
            for (u32 k = 0; k < 4; ++k)
                if (o[k] >= 0)
                    for (u32 l = 0; l < kLanes; ++l)
                        if (m >> l & 1) w.reg<u32>(o[k])[l] = static_cast<u32>(source[l] >> (32 * k));
            return Flow::next;
        };
    return nullptr;
}

Handler by_width(Ty ty, Op op) {
    switch (ty) {
        case Ty::u16_: return sums<u16>(op);
        case Ty::s16: return sums<std::int16_t>(op);
        case Ty::u32_: return op == Op::sad ? sums<u32>(op) : words<u32>(op);
        case Ty::s32: return op == Op::sad ? sums<i32>(op) : words<i32>(op);
        case Ty::u64_: return sums<u64>(op);
        case Ty::s64: return sums<i64>(op);
        case Ty::b64: return reversed<u64>(op);
        case Ty::u16x2: return half_pairs<u16>(op);
        case Ty::s16x2: return half_pairs<std::int16_t>(op);
        default: return nullptr;
    }
}

}  // namespace

// clang-format off
#define PTXM_OPS_extra_integer(X)                                                                      \
    X(fns, integer, extra_integer, "fns.b32 d, mask, base, offset")                                    \
    X(bmsk, integer, extra_integer, "bmsk{.clamp|.wrap}.b32 d, a, b")                                  \
    X(szext, integer, extra_integer, "szext{.clamp|.wrap}{.u32|.s32} d, a, b:u32")                     \
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
    X(bfind, integer, extra_integer, "bfind[.shiftamt]{.u32|.s32|.u64|.s64} d:u32, a")                 \
    X(slct, integer, extra_integer,                                                                    \
      "slct{.b16|.b32|.b64|.u16|.s16|.u32|.s32|.u64|.s64|.f32|.f64}.s32 d, a, b, c:s32; "              \
      "slct[.ftz]{.b16|.b32|.b64|.u16|.s16|.u32|.s32|.u64|.s64|.f32|.f64}.f32 d, a, b, c:f32")
// clang-format on

Handler bind_extra_integer(const InstRecord& r) {
    const Ty ty = static_cast<Ty>(r.type);
    const Op op = static_cast<Op>(r.op);
    switch (op) {
        case Op::fns:
            return [](Warp& w, const Inst& i, u32 m) { return ternary<u32, u32, u32, i32>(w, i, m, find_nth_set); };
        case Op::bmsk:
            return [](Warp& w, const Inst& i, u32 m) {
                const bool wrap = i.immediate;
                return binary<u32, u32, u32>(w, i, m, [wrap](u32 a, u32 b) { return bit_mask(a, b, wrap); });
            };
        case Op::bfind:
            return ty == Ty::u32_   ? find_top<u32>
                   : ty == Ty::s32  ? find_top<i32>
                   : ty == Ty::u64_ ? find_top<u64>
                                    : find_top<i64>;
        case Op::carry_add:
        case Op::carry_sub:
        case Op::carry_mad_lo:
        case Op::carry_mad_hi: return r.width_src == 64 ? carrying<u64> : carrying<u32>;
        case Op::dp4a:
        case Op::dp2a: return dot_product;
        case Op::slct: return r.width_dst == 64 ? select<u64> : r.width_dst == 32 ? select<u32> : select<u16>;
        case Op::prmt: return r.immediate ? permute_mode : nullptr;
        case Op::pack: return vector_move(op, r.width_dst, r.width_src);
        case Op::unpack: return vector_move(op, r.width_src, r.width_dst);
        case Op::bfi: return r.width_dst == 64 ? insert_wide : nullptr;
        case Op::min:
        case Op::max:
            if (ty == Ty::s32 && (r.mods & kRelu)) return op == Op::max ? relu_extreme<true> : relu_extreme<false>;
            break;
        default: break;
    }
    return by_width(ty, op);
}

}  // namespace ptxm
