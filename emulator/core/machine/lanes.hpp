// Applying an operation to the active lanes of a warp. All 32 are computed (the loops vectorise), active ones are
// stored.
#pragma once

#include <bit>
#include <cmath>

#include "machine/machine.hpp"

namespace ptxm {

template <class T>
[[gnu::always_inline]] inline void store_lanes(T* __restrict destination, const T* __restrict value, u32 mask) {
    if (mask == kFullMask) {
        for (u32 l = 0; l < kLanes; ++l) destination[l] = value[l];
    } else {
        for (u32 l = 0; l < kLanes; ++l) destination[l] = mask >> l & 1 ? value[l] : destination[l];
    }
}

template <class D, class A, class F>
inline Flow unary(Warp& w, const Inst& i, u32 mask, F f) {
    const i32* o = w.ops(i);
    const A* a = w.reg<A>(o[1]);
    alignas(32) D result[kLanes];
    for (u32 l = 0; l < kLanes; ++l) result[l] = f(a[l]);
    store_lanes(w.reg<D>(o[0]), result, mask);
    return Flow::next;
}

template <class D, class A, class B, class F>
inline Flow binary(Warp& w, const Inst& i, u32 mask, F f) {
    const i32* o = w.ops(i);
    const A* a = w.reg<A>(o[1]);
    const B* b = w.reg<B>(o[2]);
    alignas(32) D result[kLanes];
    for (u32 l = 0; l < kLanes; ++l) result[l] = f(a[l], b[l]);
    store_lanes(w.reg<D>(o[0]), result, mask);
    return Flow::next;
}

template <class D, class A, class B, class C, class F>
inline Flow ternary(Warp& w, const Inst& i, u32 mask, F f) {
    const i32* o = w.ops(i);
    const A* a = w.reg<A>(o[1]);
    const B* b = w.reg<B>(o[2]);
    const C* c = w.reg<C>(o[3]);
    alignas(32) D result[kLanes];
    for (u32 l = 0; l < kLanes; ++l) result[l] = f(a[l], b[l], c[l]);
    store_lanes(w.reg<D>(o[0]), result, mask);
    return Flow::next;
}

// Denormal inputs and results become zero of the same sign under .ftz.
[[gnu::always_inline]] inline float flush(float x) {
    const u32 bits = std::bit_cast<u32>(x);
    return (bits & 0x7F800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : x;
}

// What single-precision arithmetic makes of any NaN on an H200, abs and neg included.
[[gnu::always_inline]] inline float one_nan(float x) {
    const u32 bits = std::bit_cast<u32>(x);
    return std::bit_cast<float>((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFFFFFFu : bits);
}

inline float bf16_to_float(u16 bits) { return std::bit_cast<float>(static_cast<u32>(bits) << 16); }

// Round to nearest even; NaN becomes the canonical 0x7FFF as PTX specifies for cvt to bf16.
[[gnu::always_inline]] inline u16 float_to_bf16(float x) {
    const u32 bits = std::bit_cast<u32>(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
    return static_cast<u16>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

// Silicon flushes a product that is below 2^-126 before it is rounded, which may round it up to that.
inline float product_ftz(float a, float b) {
    const float product = a * b;
    const bool tiny = std::fabs(static_cast<double>(a) * static_cast<double>(b)) < 0x1p-126;
    return tiny ? std::copysign(0.0f, product) : product;
}

}  // namespace ptxm
