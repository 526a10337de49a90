// NaNs of f64, and of what it is converted to, as an H200 makes them (tests/probes/nans.py): the operand's own, quiet,
// with its sign and payload; where no operand is NaN, a negative one. f32, f16 and bf16 have one NaN.
#pragma once

#include <bit>

#include "isa/program.hpp"

namespace ptxm {

inline double quiet(double x) { return std::bit_cast<double>(std::bit_cast<u64>(x) | u64{1} << 51); }

// The first NaN of these. Selections, which vectorise.
inline double first_nan() { return std::bit_cast<double>(0xFFF8000000000000ull); }
template <class... Others>
inline double first_nan(double operand, Others... others) {
    return operand != operand ? quiet(operand) : first_nan(others...);
}

// What an operation gives, unless that is NaN: then the first NaN of these.
template <class... Operands>
inline double keep_nan(double result, Operands... operands) {
    return result == result ? result : first_nan(operands...);
}

// Of an addition in memory, which leaves a signalling NaN as it is.
inline double add_in_memory(double a, double b) {
    if (b != b) return b;
    return a != a ? a : keep_nan(a + b);
}

}  // namespace ptxm
