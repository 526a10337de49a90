// Bit fields, three-input logic, byte permutations, funnel shifts, and moves between registers of different widths.
#include <type_traits>

#include "isa/handlers.hpp"
#include "machine/warp/lanes.hpp"

namespace ptxm {
namespace {

using U128 = unsigned __int128;

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

Flow bit_field_insert(Warp& w, const Inst& i, u32 m) {
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

Flow lop3(Warp& w, const Inst& i, u32 m) {
    const u32 table = static_cast<u32>(i.immediate);
    return ternary<u32, u32, u32, u32>(w, i, m, [table](u32 a, u32 b, u32 c) {
        u32 result = 0;
        for (u32 k = 0; k < 8; ++k)
            if (table >> k & 1) result |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
        return result;
    });
}

Flow prmt(Warp& w, const Inst& i, u32 m) {
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

}  // namespace

// clang-format off
#define PTXM_OPS_bits(X)                                          \
    X(lop3, integer, bits, "lop3.b32 d, a, b, c, #table")         \
    X(shf_l, integer, bits, "shf.l{.clamp|.wrap}.b32 d, a, b, c") \
    X(shf_r, integer, bits, "shf.r{.clamp|.wrap}.b32 d, a, b, c") \
    X(bfe, integer, bits, "bfe{.u32|.s32|.u64|.s64} d, a, b:u32, c:u32")
// clang-format on

Handler bind_bits(const InstRecord& r) {
    const Op op = static_cast<Op>(r.op);
    if (op == Op::lop3) return lop3;
    if (op == Op::prmt) return prmt;
    if (op == Op::bfe) {
        switch (static_cast<Ty>(r.type)) {
            case Ty::s32: return bit_field<i32>;
            case Ty::u32_: return bit_field<u32>;
            case Ty::s64: return bit_field<i64>;
            default: return bit_field<u64>;
        }
    }
    if (op == Op::bfi && r.width_dst == 32) return bit_field_insert;
    if (op == Op::shf_l) return funnel_shift<true>;
    if (op == Op::shf_r) return funnel_shift<false>;
    if (op == Op::brev && r.width_dst == 32)
        return [](Warp& w, const Inst& i, u32 m) {
            return unary<u32, u32>(w, i, m, [](u32 a) {
                u32 result = 0;
                for (u32 k = 0; k < 32; ++k) result |= (a >> k & 1) << (31 - k);
                return result;
            });
        };
    if (op == Op::pack) {
        if (r.width_dst == 64 && r.width_src == 32) return pack<u64, u32>;
        if (r.width_dst == 64 && r.width_src == 16) return pack<u64, u16>;
        if (r.width_dst == 32 && r.width_src == 16) return pack<u32, u16>;
        if (r.width_dst == 128 && r.width_src == 64) return pack<U128, u64>;
        return nullptr;
    }
    if (op == Op::unpack) {
        if (r.width_dst == 32 && r.width_src == 64) return unpack<u32, u64>;
        if (r.width_dst == 16 && r.width_src == 64) return unpack<u16, u64>;
        if (r.width_dst == 16 && r.width_src == 32) return unpack<u16, u32>;
        if (r.width_dst == 64 && r.width_src == 128) return unpack<u64, U128>;
        return nullptr;
    }
    return nullptr;
}

}  // namespace ptxm
