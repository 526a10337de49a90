// Sums of wgmma with D of f32, as tests/probes/sums.py fitted them to an H200: the accumulator and all products of an
// instruction are aligned to the largest exponent among them, truncated some bits below it, added, and the sum is
// truncated. Operands are finite.
#pragma once

#include "wgmma_operands.hpp"

namespace ptxm::wgmma_sums {

constexpr u32 kMaxK = 32, kMaxN = 256;

// D += A B for the 16 rows of a warp, in f64, which holds every term exactly. a[row * kMaxK + k], b[k * kMaxN +
// column], d[row * kMaxN + column].
void multiply(const WgmmaShape& s, const float* a, const float* b, float* d);

// B, and the exponents of its elements, in the order in which the lanes of a register of D need them (PTX ISA
// 9.7.15.5.1.1): register 4 c + 2 h + p has columns 8 c + 2 (lane % 4) + p of rows 8 h + lane / 4.
struct PackedB {
    float value[kMaxK][kMaxN];
    std::int16_t exponent[kMaxK][kMaxN];
    int low, high;  // of the exponents, zeros left out
};
void pack_b(const WgmmaShape& s, const float* b, PackedB& out);

// The same sums, a register of D at a time, in f32 and integers: the products of 16-bit operands are exact in f32, and
// what alignment keeps of them fits 28 bits. False, with nothing done, where an exponent leaves the range of that.
bool multiply_in_registers(const WgmmaOperation& op, u32 warp, const float* a, const PackedB& b);

}  // namespace ptxm::wgmma_sums
