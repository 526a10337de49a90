// Applying an operation to the active lanes of a warp. All 32 are computed (the loops vectorise), active ones are
// stored.
#pragma once

#include "machine/warp/warp.hpp"

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

}  // namespace ptxm
