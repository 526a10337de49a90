// The sums of tcgen05_silicon.cpp with vector registers, of f32 without scales.
#pragma once

#include "tcgen05_product.hpp"

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

// `least`: the exponent of the format's smallest normal number.
void pack_a(const float* a, u32 rows, u32 depth, int least, Exponents& out);
void pack_b(const float* bt, u32 columns, u32 depth, int least, Exponents& out);

// One MMA of a chain.
struct Group {
    const float *a, *bt;  // of the chain
    u32 first, count;     // of K
    bool accumulate;
};

// D += A B of kRowsAtOnce rows or one, by number, and of some blocks of columns. False, with nothing done, where the
// numbers are not those that vectors can do.
bool add_with_vectors(const Exponents& e, const Group& g, const u32* rows, u32 count, u32* const* d, u32 column,
                      u32 blocks);

}  // namespace ptxm::tc::silicon
