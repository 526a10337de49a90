// Comparison operators, and how setp and set combine and write their results (PTX ISA 9.7.6).
#pragma once

#include <array>
#include <utility>

#include "machine/machine.hpp"

namespace ptxm {

template <class T>
[[gnu::always_inline]] inline bool compare_one(Cmp cmp, T a, T b) {
    const bool unordered = a != a || b != b;
    switch (cmp) {
        case Cmp::eq: return a == b;
        case Cmp::ne: return !unordered && a != b;
        case Cmp::lt: return a < b;
        case Cmp::le: return a <= b;
        case Cmp::gt: return a > b;
        case Cmp::ge: return a >= b;
        case Cmp::equ: return unordered || a == b;
        case Cmp::neu: return unordered || a != b;
        case Cmp::ltu: return unordered || a < b;
        case Cmp::leu: return unordered || a <= b;
        case Cmp::gtu: return unordered || a > b;
        case Cmp::geu: return unordered || a >= b;
        case Cmp::num: return !unordered;
        case Cmp::nan: return unordered;
    }
    return false;
}

// A bit a lane. The operator is known where the loop is compiled, which lets it vectorise.
template <Cmp kCmp, class T>
u32 compared_lanes(const T* a, const T* b) {
    u32 bits = 0;
    for (u32 l = 0; l < kLanes; ++l) bits |= compare_one(kCmp, a[l], b[l]) ? 1u << l : 0;
    return bits;
}

template <class T>
u32 compared_lanes(Cmp cmp, const T* a, const T* b) {
    constexpr auto kEach = []<std::size_t... N>(std::index_sequence<N...>) {
        return std::array{compared_lanes<static_cast<Cmp>(N), T>...};
    }(std::make_index_sequence<static_cast<std::size_t>(Cmp::nan) + 1>{});
    return kEach[static_cast<std::size_t>(cmp)](a, b);
}

// A comparison's lanes combined with its third source when there is one.
inline u32 combine(Warp& w, const Inst& i, u32 bits) {
    if (i.n_src < 3) return bits;
    u32 c = w.pred(w.ops(i)[i.n_dst + 2]);
    if (i.mods & kBoolNegated) c = ~c;
    switch ((i.mods & kBoolMask) >> kBoolShift) {
        case 0: return bits & c;
        case 1: return bits | c;
        default: return bits ^ c;
    }
}

// set: true is all ones for an integer destination, 1.0 for a floating-point one. bits[k] has the lanes of element k.
void write_set(Warp& w, const Inst& i, u32 mask, const u32* bits, u32 parts);

// Stores the result of a setp, combined with its third source when there is one.
void write_comparison(Warp& w, const Inst& i, u32 mask, u32 bits);

}  // namespace ptxm
