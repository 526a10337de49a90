// f16, bf16 and pairs of them: arithmetic and comparison (PTX ISA 9.7.4). A value is widened to f32, where
// a sum or product of two has bits enough for the second rounding to be right; fma rounds to odd in between.
#include <array>

#include "isa/handlers.hpp"
#include "machine/warp/lanes.hpp"
#include "numbers/formats.hpp"
#include "numbers/min_max.hpp"
#include "numbers/rounding.hpp"
#include "numbers/single.hpp"
#include "ptx/scalar/compare.hpp"

namespace ptxm {
namespace {

struct Half {
    // With the sign of a NaN, which .xorsign reads.
    static float widen(u16 bits) {
        return std::bit_cast<float>(std::bit_cast<u32>(half_to_float(bits)) | static_cast<u32>(bits & 0x8000) << 16);
    }
    static u16 round(float x) { return float_to_half(x); }
    static constexpr u16 kSmallestNormal = 0x0400, kInfinity = 0x7C00;
};
struct Bfloat {
    static float widen(u16 bits) { return bf16_to_float(bits); }
    static u16 round(float x) { return float_to_bf16(x); }
    static constexpr u16 kSmallestNormal = 0x0080, kInfinity = 0x7F80;
};

template <class N>
u16 flush_bits(u16 x) {
    return (x & 0x7FFF) < N::kSmallestNormal ? x & 0x8000 : x;
}

template <class N>
u16 finish(float r, u32 mods) {
    if (mods & kSat) r = saturate(r);
    if (mods & kRelu) r = r <= 0.0f ? 0.0f : r;
    const u16 bits = N::round(r);
    return mods & kFtz ? flush_bits<N>(bits) : bits;
}

// f(a, b, c) on every element; kParts elements a lane.
template <class N, u32 kParts, class F>
Flow elements(Warp& w, const Inst& i, u32 m, F f) {
    const i32* o = w.ops(i);
    const u32 mods = i.mods;
    const u16 *a = w.reg<u16>(o[1]), *b = i.n_src > 1 ? w.reg<u16>(o[2]) : a, *c = i.n_src > 2 ? w.reg<u16>(o[3]) : a;
    const auto load = [mods](u16 x) { return N::widen(mods & kFtz ? flush_bits<N>(x) : x); };
    alignas(32) u16 result[kParts * kLanes];
    for (u32 k = 0; k < kParts * kLanes; ++k) result[k] = finish<N>(f(load(a[k]), load(b[k]), load(c[k])), mods);
    if constexpr (kParts == 2) {
        alignas(32) u32 packed[kLanes];
        std::memcpy(packed, result, sizeof packed);
        store_lanes(w.reg<u32>(o[0]), packed, m);
    } else {
        store_lanes(w.reg<u16>(o[0]), result, m);
    }
    return Flow::next;
}

float fma_odd(float a, float b, float c) {
    return round_odd(exact_sum(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c)));
}

// The NaN with which a tensor copy fills what lies out of bounds; an H200 writes it for both types.
constexpr u16 kOobNan = 0x7FF7;

// .oob: the result is 0 where a factor is the NaN of an out-of-bounds fill (PTX ISA 9.7.4.4).
template <class N, u32 kParts>
Flow fma(Warp& w, const Inst& i, u32 m) {
    if (!(i.mods & kOob)) return elements<N, kParts>(w, i, m, fma_odd);
    const i32* o = w.ops(i);
    const u16 *a = w.reg<u16>(o[1]), *b = w.reg<u16>(o[2]);
    bool zero[kParts * kLanes];
    for (u32 k = 0; k < kParts * kLanes; ++k) zero[k] = a[k] == kOobNan || b[k] == kOobNan;
    const Flow flow = elements<N, kParts>(w, i, m, fma_odd);
    u16* d = w.reg<u16>(o[0]);
    for (u32 k = 0; k < kParts * kLanes; ++k)
        if (zero[k] && m >> k / kParts & 1) d[k] = 0;
    return flow;
}

// Signs are bits; of a NaN neg and abs make the one that arithmetic gives, and .ftz flushes what they give.
template <class N, u32 kParts>
Flow sign_bits(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const u16* a = w.reg<u16>(o[1]);
    const u16 flip = static_cast<Op>(i.op) == Op::neg ? 0x8000 : 0,
              keep = static_cast<Op>(i.op) == Op::abs ? 0x7FFF : 0xFFFF;
    alignas(32) u16 result[kParts * kLanes];
    for (u32 k = 0; k < kParts * kLanes; ++k) {
        const u16 x = static_cast<u16>((a[k] ^ flip) & keep);
        const u16 y = i.mods & kFtz ? flush_bits<N>(x) : x;
        result[k] = (y & 0x7FFF) > N::kInfinity ? 0x7FFF : y;
    }
    if constexpr (kParts == 2) {
        alignas(32) u32 packed[kLanes];
        std::memcpy(packed, result, sizeof packed);
        store_lanes(w.reg<u32>(o[0]), packed, m);
    } else {
        store_lanes(w.reg<u16>(o[0]), result, m);
    }
    return Flow::next;
}

template <class N, u32 kParts>
Handler arithmetic(Op op) {
    switch (op) {
        case Op::add:
            return [](Warp& w, const Inst& i, u32 m) {
                return elements<N, kParts>(w, i, m, [](float a, float b, float) { return a + b; });
            };
        case Op::sub:
            return [](Warp& w, const Inst& i, u32 m) {
                return elements<N, kParts>(w, i, m, [](float a, float b, float) { return a - b; });
            };
        case Op::mul:
            return [](Warp& w, const Inst& i, u32 m) {
                return elements<N, kParts>(w, i, m, [](float a, float b, float) { return a * b; });
            };
        case Op::fma: return fma<N, kParts>;
        case Op::neg:
        case Op::abs: return sign_bits<N, kParts>;
        default: return nullptr;
    }
}

template <class N, u32 kParts, bool kMax>
Flow narrow_extreme(Warp& w, const Inst& i, u32 m) {
    const u32 mods = i.mods;
    if (i.n_src == 3)
        return elements<N, kParts>(w, i, m,
                                   [mods](float a, float b, float c) { return extreme_of<kMax>(a, b, c, mods); });
    return elements<N, kParts>(w, i, m, [mods](float a, float b, float) { return extreme_of<kMax>(a, b, mods); });
}

// setp and the comparison of set: a bit mask an element position. The two halves of a pair give p and q.
template <class N, u32 kParts>
std::array<u32, 2> compare_elements(Warp& w, const Inst& i) {
    const i32* o = w.ops(i) + i.n_dst;
    const u16 *a = w.reg<u16>(o[0]), *b = w.reg<u16>(o[1]);
    const Cmp cmp = static_cast<Cmp>((i.mods & kCmpMask) >> kCmpShift);
    const bool ftz = i.mods & kFtz;
    std::array<u32, 2> bits{};
    for (u32 k = 0; k < kParts * kLanes; ++k) {
        const u16 x = ftz ? flush_bits<N>(a[k]) : a[k], y = ftz ? flush_bits<N>(b[k]) : b[k];
        bits[k % kParts] |= static_cast<u32>(compare_one(cmp, N::widen(x), N::widen(y))) << (k / kParts);
    }
    return bits;
}

template <class N, u32 kParts>
Flow set_predicates(Warp& w, const Inst& i, u32 m) {
    const std::array<u32, 2> bits = compare_elements<N, kParts>(w, i);
    if constexpr (kParts == 1) {
        write_comparison(w, i, m, bits[0]);
    } else {
        const i32* o = w.ops(i);
        for (u32 k = 0; k < i.n_dst; ++k)
            if (o[k] >= 0) w.pred(o[k]) = (w.pred(o[k]) & ~m) | (combine(w, i, bits[k]) & m);
    }
    return Flow::next;
}

template <class N, u32 kParts>
Flow set_value(Warp& w, const Inst& i, u32 m) {
    const std::array<u32, 2> bits = compare_elements<N, kParts>(w, i);
    std::array<u32, 2> combined{};
    for (u32 k = 0; k < kParts; ++k) combined[k] = combine(w, i, bits[k]);
    write_set(w, i, m, combined.data(), kParts);
    return Flow::next;
}

template <class N, u32 kParts>
Handler family(Op op) {
    switch (op) {
        case Op::min: return narrow_extreme<N, kParts, false>;
        case Op::max: return narrow_extreme<N, kParts, true>;
        case Op::setp: return set_predicates<N, kParts>;
        case Op::set: return set_value<N, kParts>;
        default: return arithmetic<N, kParts>(op);
    }
}

}  // namespace

Handler bind_half(const InstRecord& r) {
    const Op op = static_cast<Op>(r.op);
    // set compares its source type; everything else has one type.
    switch (static_cast<Ty>(op == Op::set ? r.type2 : r.type)) {
        case Ty::f16: return family<Half, 1>(op);
        case Ty::bf16: return family<Bfloat, 1>(op);
        case Ty::f16x2: return family<Half, 2>(op);
        case Ty::bf16x2: return family<Bfloat, 2>(op);
        default: return nullptr;
    }
}

}  // namespace ptxm
