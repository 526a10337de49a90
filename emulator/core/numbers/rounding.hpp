// Directed rounding to f32 of exact results held as a double and the sign of what it lacks. No host rounding mode is
// touched, so the loops vectorise.
#pragma once

#include <bit>
#include <cmath>

#include "isa/program.hpp"

namespace ptxm {

// value + error is the exact result, |error| at most half a unit in the last place of value.
struct Exact {
    double value, error;
};

inline Exact exact_sum(double a, double b) {  // Knuth's two-sum
    const double s = a + b, part = s - a;
    return {s, (a - (s - part)) + (b - part)};
}

inline float next_below(float x) {
    const u32 bits = std::bit_cast<u32>(x);
    const u32 below = (bits << 1) == 0 ? 0x80000001u : bits >> 31 ? bits + 1 : bits - 1;
    return std::bit_cast<float>(below);
}

inline float round_down(Exact e) {
    const float f = static_cast<float>(e.value);
    const bool above = static_cast<double>(f) > e.value || (static_cast<double>(f) == e.value && e.error < 0);
    return above ? next_below(f) : f;
}

inline float round_up(Exact e) { return -round_down({-e.value, -e.error}); }

template <u32 kMode>
inline float round_directed(Exact e) {
    if constexpr (kMode == kRm) return round_down(e);
    if constexpr (kMode == kRp) return round_up(e);
    return std::signbit(e.value) ? round_up(e) : round_down(e);
}

// The sum of two doubles; of opposite zeros, or of numbers that cancel, -0 when rounding down (IEEE 754, 6.3).
template <u32 kMode>
inline float add_directed(double a, double b) {
    const float sum = round_directed<kMode>(exact_sum(a, b));
    if constexpr (kMode == kRm) return a + b == 0.0 && (std::signbit(a) || std::signbit(b)) ? -0.0f : sum;
    return sum;
}

// The product of two f32 is exact in a double.
template <u32 kMode>
inline float mul_directed(float a, float b) {
    return round_directed<kMode>({static_cast<double>(a) * static_cast<double>(b), 0.0});
}

template <u32 kMode>
inline float fma_directed(float a, float b, float c) {
    return add_directed<kMode>(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c));
}

template <u32 kMode>
inline float div_directed(float a, float b) {
    const double x = a, y = b, q = x / y, rest = std::fma(-q, y, x);
    return round_directed<kMode>(
        {q, rest == 0.0 || rest != rest ? 0.0 : (std::signbit(rest) == std::signbit(y) ? 1.0 : -1.0)});
}

template <u32 kMode>
inline float sqrt_directed(float a) {
    const double x = a, s = std::sqrt(x), rest = std::fma(-s, s, x);
    return round_directed<kMode>({s, rest});
}

// A double rounded to f32 so that a later rounding to fewer bits is right: inexact results become odd.
inline float round_odd(Exact e) {
    float f = static_cast<float>(e.value);
    if (f != f) return f;
    if (std::isinf(f) && !std::isinf(e.value)) return std::copysign(3.40282347e38f, f);
    const double missing = (e.value - static_cast<double>(f)) + e.error;
    const u32 bits = std::bit_cast<u32>(f);
    if (missing == 0.0 || missing != missing || (bits & 1)) return f;
    if ((bits << 1) == 0) return std::bit_cast<float>(missing > 0 ? 1u : 0x80000001u);
    return std::bit_cast<float>((missing > 0) == !(bits >> 31) ? bits + 1 : bits - 1);
}

}  // namespace ptxm
