// Lanes of two vectors, the second's numbered behind the first's.
#pragma once

#include "isa/program.hpp"

namespace ptxm {

template <u32... lanes, class V>
[[gnu::always_inline]] inline V shuffled(const V& x, const V& y) {
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(x, y, lanes...);
#else  // GCC 11
    constexpr u32 from[] = {lanes...}, count = sizeof...(lanes);
    V out;
    for (u32 j = 0; j < count; ++j) out[j] = from[j] < count ? x[from[j]] : y[from[j] - count];
    return out;
#endif
}

}  // namespace ptxm
