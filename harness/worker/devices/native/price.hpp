// What decode takes by shape and splits: harness/kernel_side/price.py, operation by operation, so that bits are equal.
#pragma once

#include <algorithm>
#include <cmath>

#include "sizes.hpp"

namespace fmha::planner {

constexpr i64 kPartKeys = 128, kMostSplits = 128, kMostOfATile = 64, kTurns = 4, kFewRows = 1024, kBalanced = -1;
constexpr i64 kMostForAWarp = 16, kCombineCtas = 4;
constexpr double kInFlight = 8, kManyInFlight = 32, kUnknown = 0, kSideBySide = 0.9, kShort = 0.2;
constexpr double kLikely[] = {0.06, 0.45};

struct Decode {
    i64 head_dim, planes, rows, keys;
    double mean;
    i64 entries;
};

// Of the planes' keys, where all entries but the longest have so many in the mean.
inline double mean_with(const Decode& of, double others) {
    return (1.0 + static_cast<double>(of.entries - 1) * others) / static_cast<double>(of.entries);
}

inline double together(double a, double b) {
    a = a * a, b = b * b;
    return std::sqrt(std::sqrt(a * a + b * b));
}

// CTAs of entries that differ: price._apart_us.
inline double apart_us(double mean, double ctas, double slots, double tiles, double around, double tile) {
    const double longest = around + tiles * tile;
    const double busy = mean * (around + tiles * tile) * ctas / slots;
    const double later = ctas > slots ? 2.0 * around + std::min(1.0, mean + kShort * mean) * tiles * tile : 0.0;
    return together(together(longest, busy), later);
}

inline double call_us(const Decode& of, const Shape& shape, i64 splits, const Pace& pace, const Rates& rates) {
    if (of.mean == kUnknown) {
        Decode few = of, many = of;
        few.mean = mean_with(of, kLikely[0]), many.mean = mean_with(of, kLikely[1]);
        return std::sqrt(call_us(few, shape, splits, pace, rates) * call_us(many, shape, splits, pace, rates));
    }
    const auto real = [](i64 n) { return static_cast<double>(n); };
    const double mean = of.mean;
    const i64 slots = kMultiprocessors * shape.ctas_per_sm;
    const i64 row_tiles = divide_up(of.rows, shape.rows) * of.planes, key_tiles = divide_up(of.keys, shape.keys);
    const double bytes = mean * real(of.planes) * real(of.keys) * real(of.head_dim) * 4;
    const auto tile_us = [&](i64 ctas) {
        return ctas <= kMultiprocessors || shape.ctas_per_sm == 1 ? pace.tile : pace.together;
    };
    const auto read_us = [&](double moved, i64 ctas) {
        return rates.lead + moved / (rates.memory * std::sqrt(std::min(1.0, real(ctas) / real(kMultiprocessors))));
    };
    double time = 0, parts = real(splits);
    if (splits == kBalanced) {
        const double least = real(kPartKeys) / real(shape.keys);
        const double tiles = std::max(mean * real(key_tiles) * real(of.planes) / real(slots), least);
        const i64 ctas = std::min(slots, row_tiles * key_tiles);
        parts = real(slots) / real(of.planes) + 1.0;
        const double each = pace.around + tiles * tile_us(ctas) + real(of.planes) / real(slots) * rates.further;
        time = together(each, read_us(bytes, ctas));
    } else if (mean < 1.0) {
        const i64 ctas = row_tiles * splits;
        double each =
            apart_us(mean, real(ctas), real(slots), real(divide_up(key_tiles, splits)), pace.around, tile_us(ctas));
        each += std::max(0.0, real(ctas) / real(slots) - 1.0) * rates.empty;
        time = together(each, read_us(bytes, ctas));
    } else {  // whole turns, and one of what is left
        const i64 ctas = row_tiles * splits, whole = ctas / slots, rest = ctas % slots;
        const double tiles = real(divide_up(key_tiles, splits));
        const auto turn_us = [&](i64 of_turn) {
            const double moved = bytes / real(ctas) * real(of_turn);
            const double each = pace.around + tiles * tile_us(of_turn);
            return together(each, read_us(moved, of_turn));
        };
        if (whole) time += real(whole) * turn_us(slots);
        if (rest) time += turn_us(rest);
    }
    if (splits == 1) return rates.launch + time;
    const i64 rows = of.planes * of.rows;
    const bool many = splits > kMostForAWarp && rows <= kCombineCtas * kMultiprocessors;
    const double of_parts = std::ceil(parts / (many ? kManyInFlight : kInFlight));
    const double moved = parts * real(rows) * real(of.head_dim) * rates.part_bytes / rates.cache;
    return rates.launch + time + rates.merge + of_parts * rates.merge_turn + moved;
}

inline i64 most_splits(const Decode& of, const Shape& shape) {
    const i64 tiles = divide_up(of.keys, shape.keys), ctas = divide_up(of.rows, shape.rows) * of.planes;
    const i64 turns = of.rows <= kFewRows ? kTurns : 1;
    const i64 most = std::min({tiles, std::max(kMostOfATile, tiles / 2), kMostSplits});
    return std::max<i64>(1, std::min(turns * kMultiprocessors * shape.ctas_per_sm / ctas, most));
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
