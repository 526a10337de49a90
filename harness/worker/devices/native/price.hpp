// What decode takes by shape and splits: harness/kernel_side/price.py, operation by operation, so that bits are equal.
#pragma once

#include <algorithm>
#include <cmath>

#include "sizes.hpp"

namespace fmha::planner {

constexpr i64 kPartKeys = 128, kMostSplits = 128, kBalanced = -1;
constexpr double kMean = 0.5, kSideBySide = 0.9;

struct Decode {
    i64 head_dim, planes, rows, keys;
    double mean;
};

inline double together(double a, double b) {
    a = a * a, b = b * b;
    return std::sqrt(std::sqrt(a * a + b * b));
}

inline double call_us(const Decode& of, const Shape& shape, i64 splits, const Pace& pace, const Rates& rates) {
    const i64 row_tiles = divide_up(of.rows, shape.rows) * of.planes, key_tiles = divide_up(of.keys, shape.keys);
    const i64 slots = kMultiprocessors * shape.ctas_per_sm;
    const auto real = [](i64 n) { return static_cast<double>(n); };
    double each, parts;
    i64 ctas;
    if (splits == kBalanced) {
        const double tiles = std::max(of.mean * real(key_tiles) * real(of.planes) / real(slots), real(kPartKeys) / real(shape.keys));
        ctas = std::min(slots, row_tiles * key_tiles);
        each = rates.balanced + pace.around + tiles * pace.together;
        parts = real(slots) / real(of.planes) + 1.0;
    } else {
        const i64 tiles = divide_up(key_tiles, splits);
        ctas = row_tiles * splits;
        const double one = pace.around + real(tiles) * (ctas <= kMultiprocessors ? pace.tile : pace.together);
        const double turns = of.mean < 1.0 ? std::max(1.0, real(ctas) / real(slots) * of.mean) : real(divide_up(ctas, slots));
        each = one * turns;
        parts = real(splits);
    }
    const double used = std::min(1.0, real(ctas) / real(kMultiprocessors));
    const double bytes = of.mean * real(of.planes) * real(of.keys) * real(of.head_dim) * 4;
    const double read = rates.lead + bytes / (rates.memory * std::sqrt(used));
    const double time = together(each, read);
    if (splits == 1) return rates.launch + time;
    const double moved = parts * real(of.planes * of.rows) * real(of.head_dim) * rates.part_bytes / rates.cache;
    return rates.launch + time + rates.merge + parts * rates.merge_part + moved;
}

// price.splits_to_try, each handed to `take`.
template <class Take>
void splits_to_try(const Decode& of, const Shape& shape, const Take& take) {
    const i64 tiles = divide_up(of.keys, shape.keys), ctas = divide_up(of.rows, shape.rows) * of.planes;
    const i64 room = std::min({kMultiprocessors * shape.ctas_per_sm / ctas, tiles, kMostSplits});
    take(1);
    for (i64 splits = 2; splits <= room;) {
        take(splits);
        const i64 longest = divide_up(tiles, splits);
        splits = longest > 1 ? std::max(splits + 1, divide_up(tiles, longest - 1)) : room + 1;
    }
}

}  // namespace fmha::planner
