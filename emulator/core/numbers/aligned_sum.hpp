// Floating-point sums of the warp's and the warpgroup's tensor core instructions, as an H200 makes them
// (tests/probes/sums.py): the accumulator and all products of an instruction are aligned to the largest exponent among
// them, truncated toward zero some bits below it, and added; the sum is truncated to f32, or rounded to f16. The
// exponent of a denormal is that of its format's smallest normal number.
#pragma once

#include "numbers/formats.hpp"

namespace ptxm::aligned_sum {

// What alignment keeps below the largest exponent, and the significand of a sum of f32, in bits.
struct Precision {
    int fraction, kept;
};
constexpr Precision kSixteenBits{25, 24}, kEightBits{13, 14};  // of operands

constexpr int kNothing = -10000;  // the exponent of zero
constexpr int kLowest = -600;     // below the exponent of any term: all are zero

inline int exponent_of(float x, int least) {
    const u32 bits = std::bit_cast<u32>(x);
    const int exponent = std::max<int>(static_cast<int>(bits >> 23 & 0xFF) - 127, least);
    return (bits << 1) == 0 ? kNothing : exponent;
}
inline double power_of_two(int n) { return std::bit_cast<double>(static_cast<u64>(n + 1023) << 52); }

// A sum's leading `kept` bits, toward zero.
inline double leading(double sum, int kept) {
    return std::bit_cast<double>(std::bit_cast<u64>(sum) & (~u64{0} << (53 - kept)));
}
float to_float(double sum, int kept);  // toward zero; infinity beyond the largest
u16 to_half(double sum);               // nearest even; NaN becomes 0x7FFF

constexpr u32 kColumns = 8, kMaxTerms = 32;  // columns of B at a time; products of an element of D
constexpr u32 kMaxRows = 2 * kMaxTerms;      // of B, which a sparse A multiplies half of

// kColumns columns of B: what is the same for all rows of A.
struct Columns {
    alignas(64) double value[kMaxRows][kColumns];
    alignas(32) i32 exponent[kMaxRows][kColumns];
    bool finite;
    // `pitch` from row to row of `b`; `least`: exponent of its format.
    Columns(const float* b, u32 rows, u32 pitch, int least);
};

// kColumns elements of the accumulator.
struct Addends {
    alignas(64) double value[kColumns];
    alignas(32) i32 exponent[kColumns];
    Addends() = default;
    Addends(const float* c, int least);  // `least`: exponent of its format
};

// For each column: the sum of c and of the products of a[0], a[1], ... with the rows k[0], k[1], ... of B, which double
// holds exactly; an infinity or a NaN where a term is one. `least_a`: exponent of the format.
void add(int fraction, u32 terms, const float* a, int least_a, const u16* k, const Columns& b, const Addends& c,
         double* sum);

// to_float of each column.
void to_floats(const double* sum, int kept, float* d);

}  // namespace ptxm::aligned_sum
