// Linear filtering, to the bit what one H100 gives where it was asked: tests/probes/textures.cu. The CUDA C++
// programming guide says only that a weight has eight fractional bits; docs/journal/2026-11-25-textures.md has how the
// rest was found.
#pragma once

#include <array>

#include "memory/images.hpp"

namespace ptxm {

constexpr u32 kMostCorners = 1u << kMostDimensions;
constexpr i32 kWhole = 256;  // of a weight

// A number for each element around a place: bit d of its index is set for the one behind along dimension d.
template <class T>
using Corners = std::array<T, kMostCorners>;

// Weights in 256ths, which sum to 256, of those of the elements behind along each dimension.
Corners<i32> corner_weights(const std::array<i32, kMostDimensions>& behind);

// The weighted sum of one channel of an image's elements. The value is 0 where the weight is.
float weighted_sum(const Image& m, const Corners<float>& values, const Corners<i32>& weights);

}  // namespace ptxm
