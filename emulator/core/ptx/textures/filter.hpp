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

// A bit for each element that the place is between, along no dimension on another one. Its weight may be rounded to 0.
u32 corners_between(const std::array<i32, kMostDimensions>& behind);

// What a border's number is as an element of integers that are read as fractions.
i32 border_element(Texel t, float border);

// The weighted sum of one channel of an image's elements: bits of f32. An element is bits of f32, or an integer where
// the image's integers are read as fractions. `taken` is of corners_between: one whose weight is
// rounded to 0 counts where it is no finite number, and for the sign of a zero.
u32 weighted_sum(const Image& m, const Corners<u32>& elements, const Corners<i32>& weights, u32 taken);

}  // namespace ptxm
