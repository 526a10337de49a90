// The sums of numbers/aligned_sum.hpp, a register of D at a time, in f32 and integers, for D of f32 and finite factors
// of a dense A.
#pragma once

#include "numbers/aligned_sum.hpp"
#include "ptx/wgmma/operands.hpp"

namespace ptxm::wgmma_sums {

constexpr u32 kMaxK = 32, kMaxN = 256;

inline aligned_sum::Precision precision_of(ElementType a) {
    return container_bits(a) == 8 ? aligned_sum::kEightBits : aligned_sum::kSixteenBits;
}

// B, and the exponents of its elements, in the order in which the lanes of a register of D need them (PTX ISA
// 9.7.15.5.1.1): register 4 c + 2 h + p has columns 8 c + 2 (lane % 4) + p of rows 8 h + lane / 4.
struct PackedB {
    float value[kMaxK][kMaxN];
    std::int16_t exponent[kMaxK][kMaxN];
    int low, high;  // of the exponents, zeros left out
};
void pack_b(const WgmmaShape& s, const float* b, PackedB& out);

// D += A B for the 16 rows of a warp, a[row * kMaxK + k]: the products of 16-bit operands are exact in f32, and what
// alignment keeps of them fits 28 bits. False, with nothing done, where an exponent leaves the range of that.
bool multiply_in_registers(const WgmmaOperation& op, u32 warp, const float* a, const PackedB& b);

}  // namespace ptxm::wgmma_sums
