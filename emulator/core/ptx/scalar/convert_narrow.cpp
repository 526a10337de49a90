// cvt to and from pairs: two f32 into one packed register, and f16x2 or bf16x2 to and from the 4-, 6- and 8-bit
// formats; cvt.pack of integers (PTX ISA 9.7.9.21, 9.7.9.22).
#include <algorithm>
#include <cstdlib>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "isa/handlers.hpp"
#include "machine/warp/lanes.hpp"
#include "numbers/single.hpp"
#include "ptx/scalar/convert_value.hpp"

namespace ptxm {
namespace {

u32 element_bits(Ty ty) { return ty == Ty::e2m1x2 ? 4 : ty == Ty::f16x2 || ty == Ty::bf16x2 ? 16 : 8; }

// ue8m0 is an exponent: 2^(x - 127), 0xFF is NaN; a sign is dropped, and what lies below 2^-127 is 2^-127.
u64 to_ue8m0(const FloatFormat& s, u64 bits, u32 mods) {
    const Number n = decode(s, bits);
    if (n.nan) return 0xFF;
    const u64 too_large = mods & kSatfinite ? 0xFE : 0xFF;
    if (n.infinite) return too_large;
    if (n.magnitude == 0) return 0;
    const bool power = std::has_single_bit(n.magnitude);
    const i32 leading = n.exponent + 63 - std::countl_zero(n.magnitude) + ((mods & 3) == kRp && !power ? 1 : 0);
    if (leading > 127) return too_large;
    return static_cast<u64>(std::max(leading, -127) + 127);
}

u64 from_ue8m0(u64 bits) {
    if (bits == 0xFF) return kBf16.nan();
    Number n;
    n.magnitude = 1;
    n.exponent = static_cast<i32>(bits) - 127;
    return encode(kBf16, n, Rounding::nearest_even);
}

// s2f6: a two's complement number of 64ths.
Number decode_element(Ty s, u64 bits) {
    if (s != Ty::s2f6x2) return decode(*format_of(s), bits);
    const i32 value = static_cast<std::int8_t>(bits);
    Number n;
    n.negative = value < 0;
    n.magnitude = static_cast<u64>(std::abs(value));
    n.exponent = -6;
    return n;
}

// To bf16, multiplied by 2^(scale - 127), a scale of 0xFF being NaN; rounded once.
u64 widen(Ty s, u64 bits, u64 scale, u32 mods) {
    Number n = decode_element(s, bits);
    if (scale == 0xFF) n.nan = true;
    n.exponent += static_cast<i32>(scale) - 127;
    if ((mods & kRelu) && n.negative && !n.nan) n = Number{};
    return encode(kBf16, n, Rounding::nearest_even, mods & kSatfinite);
}

u64 convert_element(Ty d, Ty s, u64 bits, u32 mods) {
    if (d == Ty::ue8m0x2) return to_ue8m0(*format_of(s), bits, mods);
    if (s == Ty::ue8m0x2) return from_ue8m0(bits);
    return convert_value(*format_of(s), *format_of(d), bits, mods);
}

// cvt.*x2.f32 d, a, b: a in the upper half.
Flow pack_two(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const Ty d = static_cast<Ty>(i.type);
    const u32 bits = element_bits(d), *a = w.reg<u32>(o[1]), *b = w.reg<u32>(o[2]);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(m >> l & 1)) continue;
        const u64 high = convert_element(d, Ty::f32, a[l], i.mods), low = convert_element(d, Ty::f32, b[l], i.mods);
        write_lane(w, o[0], i.width_dst, l, high << bits | low);
    }
    return Flow::next;
}

// cvt of one packed pair to another.
Flow pair_to_pair(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const Ty d = static_cast<Ty>(i.type), s = static_cast<Ty>(i.type2);
    const u32 to = element_bits(d), of = element_bits(s);
    // The 6-bit formats take a byte each, the value in its low bits.
    const u64 mask = format_of(s) ? format_of(s)->sign_bit() * 2 - 1 : 0xFF;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(m >> l & 1)) continue;
        const u64 source = read_lane(w, o[1], i.width_src, l);
        const u64 low = convert_element(d, s, source & mask, i.mods),
                  high = convert_element(d, s, source >> of & mask, i.mods);
        write_lane(w, o[0], i.width_dst, l, high << to | low);
    }
    return Flow::next;
}

// cvt of a narrow pair to bf16x2: d, a {, scale-factor}, a byte of which belongs to each element.
Flow pair_to_bf16(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const Ty s = static_cast<Ty>(i.type2);
    const u32 of = element_bits(s);
    const u64 mask = format_of(s) ? format_of(s)->sign_bit() * 2 - 1 : 0xFF;
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(m >> l & 1)) continue;
        const u64 source = read_lane(w, o[1], i.width_src, l), scales = i.mods & kScaled ? w.reg<u16>(o[2])[l] : 0x7F7F;
        const u64 low = widen(s, source & mask, scales & 0xFF, i.mods),
                  high = widen(s, source >> of & mask, scales >> 8, i.mods);
        write_lane(w, o[0], i.width_dst, l, high << 16 | low);
    }
    return Flow::next;
}

#ifdef __AVX512F__
// Pairs of halves, as float_to_half rounds.
template <bool kRelu_>
Flow pack_halves(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const auto halves = [&](const float* from) {
        __m512 x = _mm512_loadu_ps(from);
        if (kRelu_)
            x = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LE_OQ), _mm512_setzero_ps());
        const __m256i h = _mm512_maskz_cvtps_ph(0xFFFF, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m512i wide = _mm512_maskz_cvtepu16_epi32(0xFFFF, h);
        return _mm512_mask_mov_epi32(wide, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7FFF));
    };
    alignas(64) u32 result[kLanes];
    for (u32 l = 0; l < kLanes; l += 16) {
        const __m512i a = halves(w.reg<float>(o[1]) + l), b = halves(w.reg<float>(o[2]) + l);
        _mm512_store_si512(result + l, _mm512_or_si512(_mm512_maskz_slli_epi32(0xFFFF, a, 16), b));
    }
    store_lanes(w.reg<u32>(o[0]), result, m);
    return Flow::next;
}
#endif

template <bool kRelu_, u16 (*kConvert)(float)>
Flow pack_nearest(Warp& w, const Inst& i, u32 m) {
    return binary<u32, float, float>(w, i, m, [](float a, float b) {
        if (kRelu_) {
            a = a <= 0.0f ? 0.0f : a;
            b = b <= 0.0f ? 0.0f : b;
        }
        return static_cast<u32>(kConvert(a)) << 16 | kConvert(b);
    });
}

// cvt.pack.sat.type.s32 d, a, b {, c}: a then b from the top of what c does not keep; the width is in `immediate`.
Flow pack_integers(Warp& w, const Inst& i, u32 m) {
    const i32* o = w.ops(i);
    const u32 bits = static_cast<u32>(i.immediate) & 0xFF;
    const bool is_signed = i.immediate >> 8 & 1;
    const i64 low = is_signed ? -(i64{1} << (bits - 1)) : 0, high = (i64{1} << (bits - is_signed)) - 1;
    const i32 *a = w.reg<i32>(o[1]), *b = w.reg<i32>(o[2]);
    const u32* c = i.n_src > 2 ? w.reg<u32>(o[3]) : nullptr;
    const u32 mask = static_cast<u32>((u64{1} << bits) - 1);
    u32 result[kLanes];
    for (u32 l = 0; l < kLanes; ++l) {
        const u32 x = static_cast<u32>(std::clamp<i64>(a[l], low, high)) & mask,
                  y = static_cast<u32>(std::clamp<i64>(b[l], low, high)) & mask;
        result[l] = x << bits | y | (c ? c[l] << (2 * bits) : 0);
    }
    store_lanes(w.reg<u32>(o[0]), result, m);
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_convert_packed(X)          \
    X(cvt_pack, conversion, convert_packed) \
    X(cvt_int_pack, conversion, convert_packed)
// clang-format on

Handler bind_convert_packed(const InstRecord& r) {
    if (static_cast<Op>(r.op) == Op::cvt_int_pack) return pack_integers;
    if (static_cast<Op>(r.op) != Op::cvt_pack) return nullptr;
    const Ty d = static_cast<Ty>(r.type), s = static_cast<Ty>(r.type2);
    if (d == Ty::bf16x2 && s != Ty::f32 && s != Ty::ue8m0x2) return pair_to_bf16;
    if (s != Ty::f32) return pair_to_pair;
    if (r.width_dst == 32 && (r.mods & ~static_cast<u32>(kRelu)) == 0) {
        const bool relu = r.mods & kRelu;
        if (d == Ty::bf16x2) return relu ? pack_nearest<true, float_to_bf16> : pack_nearest<false, float_to_bf16>;
#ifdef __AVX512F__
        if (d == Ty::f16x2) return relu ? pack_halves<true> : pack_halves<false>;
#endif
        if (d == Ty::f16x2) return relu ? pack_nearest<true, float_to_half> : pack_nearest<false, float_to_half>;
    }
    return pack_two;
}

}  // namespace ptxm
