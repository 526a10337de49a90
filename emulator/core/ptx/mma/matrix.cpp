// Element conversions and checks shared by the matrix instructions.
#include "ptx/mma/matrix.hpp"

#include <cmath>

namespace ptxm {
namespace element {
namespace {

// Floating-point formats of up to 8 bits. Infinities and NaN: e5m2 as IEEE; e4m3 has one NaN a sign and no infinity;
// the 6- and 4-bit formats have neither (PTX ISA 5.2.3).
float small_float(u32 raw, int exponent_bits, int fraction_bits, bool ieee, bool top_is_nan) {
    const u32 fraction = raw & ((1u << fraction_bits) - 1);
    const u32 top = (1u << exponent_bits) - 1;
    const u32 exponent = raw >> fraction_bits & top;
    const float sign = raw >> (exponent_bits + fraction_bits) & 1 ? -1.0f : 1.0f;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    if (ieee && exponent == top) return fraction ? NAN : sign * INFINITY;
    if (top_is_nan && exponent == top && fraction == (1u << fraction_bits) - 1) return NAN;
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), 1 - bias - fraction_bits);
    return sign * std::ldexp(static_cast<float>(fraction | 1u << fraction_bits),
                             static_cast<int>(exponent) - bias - fraction_bits);
}

using Table = std::array<float, 256>;

template <class F>
Table make_table(F f) {
    Table t;
    for (u32 k = 0; k < 256; ++k) t[k] = f(k);
    return t;
}

}  // namespace

const Table kE4m3 = make_table([](u32 r) { return small_float(r, 4, 3, false, true); });
const Table kE5m2 = make_table([](u32 r) { return small_float(r, 5, 2, true, false); });
// In 8-bit containers: 6-bit values in the low bits, 4-bit ones in bits 2 to 5 (PTX ISA 9.7.14.5, alternate formats).
const Table kE3m2 = make_table([](u32 r) { return small_float(r & 0x3F, 3, 2, false, false); });
const Table kE2m3 = make_table([](u32 r) { return small_float(r & 0x3F, 2, 3, false, false); });
const Table kE2m1 = make_table([](u32 r) { return small_float(r >> 2 & 0xF, 2, 1, false, false); });

u16 to_half(float x) {
    const u32 bits = std::bit_cast<u32>(x), sign = bits >> 16 & 0x8000u;
    const float magnitude = std::fabs(x);
    if (magnitude != magnitude) return 0x7FFF;
    if (magnitude >= 65520.0f) return static_cast<u16>(sign | 0x7C00u);
    if (magnitude < 0x1p-14f)
        // Below the normal range a unit is 2^-24; the sum rounds to it, ties to even.
        return static_cast<u16>(sign | static_cast<u32>(std::nearbyintf(magnitude * 0x1p24f)));
    const u32 m = bits & 0x7FFFFFFFu;
    return static_cast<u16>(sign | ((m + 0xFFFu + (m >> 13 & 1) - (112u << 23)) >> 13));
}

}  // namespace element

void need_full_warp(u32 mask, const char* what) {
    if (mask != kFullMask)
        throw Fault("partial-warp",
                    format("%s executed by lanes 0x%08x: it needs all 32 lanes of the warp", what, mask));
}

u32 own_shared(Warp& w, u64 address, bool generic, u32 size, const char* what) {
    if (generic) {
        if ((address & kWindowMask) != kSharedWindow)
            throw Fault("address-space", format("%s at generic address 0x%llx, which is not in shared memory", what,
                                                (unsigned long long)address));
        address &= ~kWindowMask;
    }
    const u64 own = static_cast<u32>(address) - (u64{w.cta->rank} << kSharedRankShift);
    if (own >= kSharedStart && own <= kSharedOffsetMask && own + size <= w.cta->shared.size())
        return static_cast<u32>(own);
    const SharedRef ref = resolve_shared(w, static_cast<u32>(address), size, what);
    if (ref.cta != w.cta)
        throw Fault("shared-out-of-bounds",
                    format("%s at shared 0x%llx, which lies in another CTA", what, (unsigned long long)address));
    return ref.offset;
}

}  // namespace ptxm
