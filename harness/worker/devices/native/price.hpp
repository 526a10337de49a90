// What decode takes by shape and splits: harness/kernel_side/price.py, operation by operation, so that bits are equal.
#pragma once

#include <algorithm>
#include <cmath>

#include "sizes.hpp"

namespace fmha::planner {

constexpr i64 kPartKeys = 128, kMostSplits = 128, kTurns = 4, kTurnsApart = 2, kBalanced = -1;
constexpr i64 kMostForAWarp = 16, kCombineCtas = 4;
constexpr double kInFlight = 8, kManyInFlight = 32, kUnknown = 0, kSideBySide = 0.9;
constexpr double kLikely[] = {0.15, 0.6};

struct Decode {
    i64 head_dim, planes, rows, keys;
    double mean;
};

inline double together(double a, double b) {
    a = a * a, b = b * b;
    return std::sqrt(std::sqrt(a * a + b * b));
}

inline double call_us(const Decode& of, const Shape& shape, i64 splits, const Pace& pace, const Rates& rates) {
    if (of.mean == kUnknown) {
        Decode few = of, many = of;
        few.mean = kLikely[0], many.mean = kLikely[1];
        return std::sqrt(call_us(few, shape, splits, pace, rates) * call_us(many, shape, splits, pace, rates));
    }
    const auto real = [](i64 n) { return static_cast<double>(n); };
    const double mean = of.mean;
    const i64 row_tiles = divide_up(of.rows, shape.rows) * of.planes, key_tiles = divide_up(of.keys, shape.keys);
    const i64 slots = kMultiprocessors * shape.ctas_per_sm;
    double tiles, turns, more, parts;
    i64 ctas;
    if (splits == kBalanced) {
        const double least = real(kPartKeys) / real(shape.keys);
        tiles = std::max(mean * real(key_tiles) * real(of.planes) / real(slots), least);
        ctas = std::min(slots, row_tiles * key_tiles);
        turns = 1.0;
        more = real(of.planes) / real(slots) * rates.further;
        parts = real(slots) / real(of.planes) + 1.0;
    } else {
        tiles = real(divide_up(key_tiles, splits));
        ctas = row_tiles * splits;
        turns = mean < 1.0 ? std::max(1.0, real(ctas) / real(slots) * mean) : real(divide_up(ctas, slots));
        more = mean < 1.0 ? std::max(0.0, real(ctas) / real(slots) - 1.0) * rates.empty : 0.0;
        parts = real(splits);
    }
    const bool alone = ctas <= kMultiprocessors || shape.ctas_per_sm == 1;
    const double each = (pace.around + tiles * (alone ? pace.tile : pace.together)) * turns + more;
    const double used = std::min(1.0, real(ctas) / real(kMultiprocessors));
    const double bytes = mean * real(of.planes) * real(of.keys) * real(of.head_dim) * 4;
    const double time = together(each, rates.lead + bytes / (rates.memory * std::sqrt(used)));
    if (splits == 1) return rates.launch + time;
    const i64 rows = of.planes * of.rows;
    const bool many = splits > kMostForAWarp && rows <= kCombineCtas * kMultiprocessors;
    const double of_parts = std::ceil(parts / (many ? kManyInFlight : kInFlight));
    const double moved = parts * real(rows) * real(of.head_dim) * rates.part_bytes / rates.cache;
    return rates.launch + time + rates.merge + of_parts * rates.merge_turn + moved;
}

inline i64 most_splits(const Decode& of, const Shape& shape) {
    const i64 tiles = divide_up(of.keys, shape.keys), ctas = divide_up(of.rows, shape.rows) * of.planes;
    const i64 turns = of.mean == 1.0 ? kTurns : kTurnsApart;
    return std::max<i64>(1, std::min({turns * kMultiprocessors * shape.ctas_per_sm / ctas, tiles, kMostSplits}));
}

// price.splits_to_try, each handed to `take`.
template <class Take>
void splits_to_try(const Decode& of, const Shape& shape, const Take& take) {
    const i64 tiles = divide_up(of.keys, shape.keys), room = most_splits(of, shape);
    take(1);
    for (i64 splits = 2; splits <= room;) {
        take(splits);
        const i64 longest = divide_up(tiles, splits);
        splits = longest > 1 ? std::max(splits + 1, divide_up(tiles, longest - 1)) : room + 1;
    }
}

}  // namespace fmha::planner
