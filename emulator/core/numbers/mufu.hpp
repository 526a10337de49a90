// The transcendental functions of silicon's multi-function unit (MUFU), bit for bit as an H200 computes them: each
// interpolates by quadratics over equal segments of its argument, C0 + C1 l + C2 l^2, with l^2 truncated before it is
// multiplied (Oberman and Siu, A High-Performance Area-Efficient Multifunction Interpolator, ARITH 2005). The
// coefficients and every truncation were fitted to what the GPU returned (tests/probes/mufu_fit.py) and hold for all
// 2^32 arguments (results/mufu-h200.json).
//
// Arguments and results are the bits of an f32. A denormal argument is zero, a denormal result of rcp and ex2 is
// flushed to zero, a NaN is 0x7FFFFFFF.
#pragma once

#include <bit>

#include "isa/program.hpp"

namespace ptxm::mufu {

// Of a function on a segment: C0 of 26 bits, C1 of 16, C2 of 10; those of tanh, whose segments are wide, are larger.
struct Row {
    i32 c0, c1, c2;
};

// In units of 2^-fraction: (c0 << c0_shift) + rounding + c1 l + (c2 << c2_shift) square(l).
template <u32 kRows>
struct Function {
    int c0_shift;
    i32 rounding;
    int c2_shift, fraction;
    Row rows[kRows];
};

constexpr u32 kOffsetBits = 17;  // of l, the argument's place in its segment
constexpr u32 kOffsetMask = (1u << kOffsetBits) - 1;

// l^2 in units of 2^19. The partial products of its columns below that are not formed, so nothing carries out of them:
// of bits i and j of l, whose product has the weight 2^(i + j + 1), 2^2i where they are one.
[[gnu::always_inline]] inline u32 square(u32 l) {
    const u32 high = l >> 9, low = l & 0x1FF;
    // Written out, since GCC would vectorise the seven and not the lanes that call it.
    const auto row = [=](u32 bit) { return high & 1u << bit ? low >> (9 - bit) : 0u; };
    return ((high * high - (high & 1)) >> 1) + row(1) + row(2) + row(3) + row(4) + row(5) + row(6) + row(7);
}

u32 rsqrt(u32 x);
u32 sqrt(u32 x);
u32 lg2(u32 x);
u32 tanh(u32 x);
// The argument is in turns.
u32 sin(u32 x);
u32 cos(u32 x);
// The upper words of rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64, from that of the argument.
u32 rcp_double(u32 high);
u32 rsqrt_double(u32 high);

// Of a warp's 32 lanes; `x` and `result` do not overlap.
void ex2(const u32* x, u32* result);
void rcp(const u32* x, u32* result);

}  // namespace ptxm::mufu
