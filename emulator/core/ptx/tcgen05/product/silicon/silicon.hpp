// The sums of ptx/tcgen05/product/silicon/silicon.cpp with vector registers, of f32 and a dense A.
#pragma once

#include "ptx/tcgen05/product/product.hpp"

namespace ptxm::tc::silicon {

constexpr u32 kRowsAtOnce = 4, kBlocksAtOnce = 4;  // of D; a block is of 16 columns

// Of the operands' numbers, relative to base_a and base_b, which are as f32 stores exponents.
struct Exponents {
    Exponents() {}                           // leaves the arrays as they are
    alignas(64) u32 a[kTmemLanes][kChainK];  // each four times
    alignas(64) std::int8_t b[kChainK][kMaxN + kBlocksAtOnce * kBlockColumns];
    int base_a[kTmemLanes], base_b;
    bool finite_a[kTmemLanes], finite_b;
};

// Rows of A by number, and of B by k.
struct Operands {
    const float *a, *bt;
    u32 a_pitch, b_pitch;
};
// `least`: the exponent of the format's smallest normal number.
void pack_a(const Operands& o, u32 rows, u32 depth, int least, Exponents& out);
void pack_b(const Operands& o, u32 columns, u32 depth, int least, Exponents& out);

// One MMA. Products have the scale 2^(scale_a[row of A] + scale_b[column]), where there are scales.
struct Group {
    const Operands& operands;
    u32 first, count;  // of K
    bool accumulate;
    const i32 *scale_a = nullptr, *scale_b = nullptr;
};

// D += A B of kRowsAtOnce rows or one, by number, and of some blocks of columns. False, with nothing done, where the
// numbers are not those that vectors can do.
bool add_with_vectors(const Exponents& e, const Group& g, const u32* rows, u32 count, u32* const* d, u32 column,
                      u32 blocks);

}  // namespace ptxm::tc::silicon
