// What looks at single bits or moves bytes: bit counts and search, masks and fields, lop3, funnel shifts, prmt with all
// its modes, and mov between a register and its parts (PTX ISA 9.7.1, 9.7.8, 9.7.9).
#include <algorithm>
#include <cstdlib>
#include <type_traits>

#include "isa/handlers.hpp"
#include "machine/warp/lanes.hpp"

namespace ptxm {
namespace {

using U128 = unsigned __int128;

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

template <class T>
Flow bit_field(Warp& w, const Inst& i, u32 m) {
    using U = std::make_unsigned_t<T>;
    constexpr u32 bits = 8 * sizeof(T);
    return ternary<T, T, u32, u32>(w, i, m, [](T a, u32 position, u32 length) {
        position &= 0xFF;
        length &= 0xFF;
        const auto bit = [&](u32 n) { return static_cast<u32>(U(a) >> std::min(n, bits - 1) & 1); };
        if (length == 0) return T{0};
        const u32 sign = std::is_signed_v<T> ? bit(position + length - 1) : 0;
        U result = position >= bits ? U{0} : static_cast<U>(U(a) >> position);
        const u32 valid = position >= bits ? 0 : std::min(length, bits - position);
        if (valid < bits) {
            const U keep = static_cast<U>((U{1} << valid) - 1);
            result = sign ? static_cast<U>((result & keep) | ~keep) : static_cast<U>(result & keep);
        }
        return static_cast<T>(result);
    });
}

Flow bit_field_insert(Warp& w, const Inst& i, u32 m) {  // bfi.b32
    const i32* o = w.ops(i);
    const u32 *a = w.reg<u32>(o[1]), *b = w.reg<u32>(o[2]), *p = w.reg<u32>(o[3]), *n = w.reg<u32>(o[4]);
    alignas(32) u32 result[kLanes];
    for (u32 l = 0; l < kLanes; ++l) {
        const u32 position = p[l] & 0xFF, length = n[l] & 0xFF;
        const u64 field = ((length >= 32 ? ~0ull : (1ull << length) - 1) << std::min(position, 63u));
        result[l] = position >= 32 ? b[l] : static_cast<u32>((b[l] & ~field) | ((u64{a[l]} << position) & field));
    }
    store_lanes(w.reg<u32>(o[0]), result, m);
    return Flow::next;
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

Flow lop3(Warp& w, const Inst& i, u32 m) {
    const u32 table = static_cast<u32>(i.immediate);
    return ternary<u32, u32, u32, u32>(w, i, m, [table](u32 a, u32 b, u32 c) {
        u32 result = 0;
        for (u32 k = 0; k < 8; ++k)
            if (table >> k & 1) result |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
        return result;
    });
}

// prmt without a mode: a nibble of the selector names a byte of b and a, or the sign of one.
Flow permute_by_nibbles(Warp& w, const Inst& i, u32 m) {
    return ternary<u32, u32, u32, u32>(w, i, m, [](u32 a, u32 b, u32 selector) {
        const u64 source = u64{b} << 32 | a;
        u32 result = 0;
        for (u32 k = 0; k < 4; ++k) {
            const u32 nibble = selector >> (4 * k) & 0xF;
            u32 byte = static_cast<u32>(source >> (8 * (nibble & 7)) & 0xFF);
            if (nibble & 8) byte = byte & 0x80 ? 0xFF : 0;
            result |= byte << (8 * k);
        }
        return result;
    });
}

// prmt with a mode: byte k of the result is byte `byte_of(n, k)` of b and a, where n is the selector's low two bits.
template <class F>
Flow permute_by(Warp& w, const Inst& i, u32 m) {
    return ternary<u32, u32, u32, u32>(w, i, m, [](u32 a, u32 b, u32 selector) {
        const u64 source = u64{b} << 32 | a;
        u32 result = 0;
        for (u32 k = 0; k < 4; ++k) result |= static_cast<u32>(source >> (8 * F{}(selector & 3, k)) & 0xFF) << (8 * k);
        return result;
    });
}

template <class F>
Handler permutes(F) {
    return permute_by<F>;
}

// In the order of the row's syntax, which numbers them: `none` where it names no mode.
enum class PermuteMode : u32 { none, f4e, b4e, rc8, ecl, ecr, rc16 };

// PTX ISA 9.7.9.7. Without `default`, so that the compiler refuses a mode that has no line here.
Handler permutation(PermuteMode mode) {
    switch (mode) {
        case PermuteMode::none: return permute_by_nibbles;
        case PermuteMode::f4e: return permutes([](u32 n, u32 k) { return n + k; });
        case PermuteMode::b4e: return permutes([](u32 n, u32 k) { return (n + 8 - k) & 7; });
        case PermuteMode::rc8: return permutes([](u32 n, u32) { return n; });
        case PermuteMode::ecl: return permutes([](u32 n, u32 k) { return std::max(n, k); });
        case PermuteMode::ecr: return permutes([](u32 n, u32 k) { return std::min(n, k); });
        case PermuteMode::rc16: return permutes([](u32 n, u32 k) { return (n & 1) * 2 + (k & 1); });
    }
    return nullptr;  // a mode of the syntax that the enumeration lacks: the program is refused
}

template <bool kLeft>
Flow funnel_shift(Warp& w, const Inst& i, u32 m) {
    const bool wrap = i.immediate != 0;
    return ternary<u32, u32, u32, u32>(w, i, m, [wrap](u32 low, u32 high, u32 count) {
        const u32 n = wrap ? count & 31 : std::min(count, 32u);
        const u64 both = u64{high} << 32 | low;
        return static_cast<u32>(kLeft ? both << n >> 32 : both >> n);
    });
}

template <class D, class S>
Flow pack(Warp& w, const Inst& i, u32 m) {  // {a, b, ...} -> d, a lowest
    if constexpr (sizeof(D) == 2 * sizeof(S))
        return binary<D, S, S>(w, i, m,
                               [](S a, S b) { return static_cast<D>(a | static_cast<D>(b) << 8 * sizeof(S)); });
    const i32* o = w.ops(i);
    alignas(32) D result[kLanes] = {};
    for (u32 k = 0; k < i.n_src; ++k) {
        const S* s = w.reg<S>(o[1 + k]);
        for (u32 l = 0; l < kLanes; ++l) result[l] |= static_cast<D>(s[l]) << (8 * sizeof(S) * k);
    }
    store_lanes(w.reg<D>(o[0]), result, m);
    return Flow::next;
}

template <class D, class S>
Flow unpack(Warp& w, const Inst& i, u32 m) {
    constexpr u32 kParts = sizeof(S) / sizeof(D);
    const i32* o = w.ops(i);
    const S* source = w.reg<S>(o[i.n_dst]);
    alignas(64) D parts[kParts][kLanes];  // before a destination is written, which may be the source
    for (u32 k = 0; k < kParts; ++k)
        for (u32 l = 0; l < kLanes; ++l) parts[k][l] = static_cast<D>(source[l] >> (8 * sizeof(D) * k));
    for (u32 k = 0; k < kParts; ++k)
        if (o[k] >= 0) store_lanes(w.reg<D>(o[k]), parts[k], m);
    return Flow::next;
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

template <class T>
Flow reverse_bits(Warp& w, const Inst& i, u32 m) {
    return unary<T, T>(w, i, m, [](T a) {
        T result = 0;
        for (u32 k = 0; k < 8 * sizeof(T); ++k) result |= (a >> k & 1) << (8 * sizeof(T) - 1 - k);
        return result;
    });
}

template <class T>
Flow count_ones(Warp& w, const Inst& i, u32 m) {
    return unary<u32, T>(w, i, m, [](T a) { return static_cast<u32>(std::popcount(a)); });
}

template <class T>
Flow count_leading_zeros(Warp& w, const Inst& i, u32 m) {
    return unary<u32, T>(w, i, m, [](T a) { return static_cast<u32>(std::countl_zero(a)); });
}

template <class T>
Flow extend_lanes(Warp& w, const Inst& i, u32 m) {
    const bool wrap = i.immediate;
    return binary<T, T, u32>(w, i, m, [wrap](T a, u32 b) { return extend_from(a, b, wrap); });
}

Handler packing(u32 whole, u32 part) {
    if (whole == 64 && part == 32) return pack<u64, u32>;
    if (whole == 64 && part == 16) return pack<u64, u16>;
    if (whole == 32 && part == 16) return pack<u32, u16>;
    if (whole == 128 && part == 64) return pack<U128, u64>;
    return vector_move(Op::pack, whole, part);
}

Handler unpacking(u32 whole, u32 part) {
    if (part == 32 && whole == 64) return unpack<u32, u64>;
    if (part == 16 && whole == 64) return unpack<u16, u64>;
    if (part == 16 && whole == 32) return unpack<u16, u32>;
    if (part == 64 && whole == 128) return unpack<u64, U128>;
    return vector_move(Op::unpack, whole, part);
}

}  // namespace

// clang-format off
#define PTXM_OPS_bits(X)                                                          \
    X(popc, integer, bits, "popc{.b32|.b64} d:u32, a")                            \
    X(clz, integer, bits, "clz{.b32|.b64} d:u32, a")                              \
    X(bfind, integer, bits, "bfind[.shiftamt]{.u32|.s32|.u64|.s64} d:u32, a")     \
    X(fns, integer, bits, "fns.b32 d, mask, base, offset")                        \
    X(brev, integer, bits, "brev{.b32|.b64} d, a")                                \
    X(bmsk, integer, bits, "bmsk{.clamp|.wrap}.b32 d, a, b")                      \
    X(szext, integer, bits, "szext{.clamp|.wrap}{.u32|.s32} d, a, b:u32")         \
    X(bfe, integer, bits, "bfe{.u32|.s32|.u64|.s64} d, a, b:u32, c:u32")          \
    X(bfi, integer, bits, "bfi{.b32|.b64} d, a, b, c:u32, length:u32")            \
    X(lop3, integer, bits, "lop3.b32 d, a, b, c, #table")                         \
    X(shf_l, integer, bits, "shf.l{.clamp|.wrap}.b32 d, a, b, c")                 \
    X(shf_r, integer, bits, "shf.r{.clamp|.wrap}.b32 d, a, b, c")                 \
    X(prmt, integer, bits, "prmt.b32[.f4e|.b4e|.rc8|.ecl|.ecr|.rc16] d, a, b, c") \
    X(pack, integer, bits)                                                        \
    X(unpack, integer, bits)
// clang-format on

Handler bind_bits(const InstRecord& r) {
    const Ty ty = static_cast<Ty>(r.type);
    switch (static_cast<Op>(r.op)) {
        case Op::popc: return r.width_src == 64 ? count_ones<u64> : count_ones<u32>;
        case Op::clz: return r.width_src == 64 ? count_leading_zeros<u64> : count_leading_zeros<u32>;
        case Op::bfind:
            return ty == Ty::u32_   ? find_top<u32>
                   : ty == Ty::s32  ? find_top<i32>
                   : ty == Ty::u64_ ? find_top<u64>
                                    : find_top<i64>;
        case Op::fns:
            return [](Warp& w, const Inst& i, u32 m) { return ternary<u32, u32, u32, i32>(w, i, m, find_nth_set); };
        case Op::brev: return r.width_dst == 64 ? reverse_bits<u64> : reverse_bits<u32>;
        case Op::bmsk:
            return [](Warp& w, const Inst& i, u32 m) {
                const bool wrap = i.immediate;
                return binary<u32, u32, u32>(w, i, m, [wrap](u32 a, u32 b) { return bit_mask(a, b, wrap); });
            };
        case Op::szext: return ty == Ty::s32 ? extend_lanes<i32> : extend_lanes<u32>;
        case Op::bfe:
            return ty == Ty::s32    ? bit_field<i32>
                   : ty == Ty::u32_ ? bit_field<u32>
                   : ty == Ty::s64  ? bit_field<i64>
                                    : bit_field<u64>;
        case Op::bfi: return r.width_dst == 64 ? insert_wide : bit_field_insert;
        case Op::lop3: return lop3;
        case Op::shf_l: return funnel_shift<true>;
        case Op::shf_r: return funnel_shift<false>;
        case Op::prmt: return permutation(static_cast<PermuteMode>(r.immediate));
        case Op::pack: return packing(r.width_dst, r.width_src);
        case Op::unpack: return unpacking(r.width_src, r.width_dst);
        default: return nullptr;
    }
}

}  // namespace ptxm
