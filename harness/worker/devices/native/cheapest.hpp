// Which shape and how many splits are cheapest: choice.cheapest of harness/kernel_side/choice.py.
#pragma once

#include <algorithm>

#include "price.hpp"

namespace fmha::planner {

constexpr i64 kShortRows = 64, kMostShort = 1024;

struct Choice {
    i64 asked = 0, splits = 1;
};

enum Knows : i64 { kOneHead, kHeads, kLengths };  // of paces.py

inline const Pace* pace_of(const Tables& tables, i64 head_dim, i64 asked, Knows knows) {
    for (const Pace& pace : tables.paces)
        if (pace.head_dim == head_dim && pace.asked == asked && pace.knows == knows) return &pace;
    return nullptr;
}

inline const Rates& rates_of(const Tables& tables, i64 head_dim) {
    return *std::find_if(tables.rates.begin(), tables.rates.end(),
                         [&](const Rates& rates) { return rates.head_dim == head_dim; });
}

// choice.mean_of.
inline double mean_of(const Call& call) {
    if (!call.ragged) return 1.0;
    if (!call.packed_k()) return kUnknown;
    return std::min(1.0, static_cast<double>(call.total_k) / static_cast<double>(call.batch * call.s_k));
}

inline bool may_balance(const Tables& tables, const Call& call, i64 asked) {
    const Shape& shape = tables.shape_of(call.head_dim, asked);
    const i64 ctas = kMultiprocessors * shape.ctas_per_sm;
    const bool there = call.head_dim < 512 && (!asked || (call.head_dim > 64 && !call.scattered()));
    return there && call.rows() <= shape.rows &&
           static_cast<double>(ctas / call.kv_heads * call.kv_heads) >= kSideBySide * static_cast<double>(ctas);
}

// With `splits`, of so many; 0 leaves them open.
inline Choice cheapest(const Tables& tables, const Call& call, bool by_head, double mean, i64 splits) {
    const Decode of{call.head_dim, call.planes(), call.rows(), call.s_k, mean, call.batch};
    const Rates& rates = rates_of(tables, call.head_dim);
    const Knows knows = by_head ? kHeads : kOneHead;
    const auto there = [&](i64 asked) {
        return pace_of(tables, call.head_dim, asked, knows) && (!asked || of.rows <= kMostShort);
    };
    const auto holds = [&](i64 asked) {
        return there(asked) && splits <= most_splits(of, tables.shape_of(call.head_dim, asked));
    };
    // With splits, of shapes of which the GPU has places for so many CTAs, if there are any.
    const bool any = splits > 1 && (holds(0) || holds(kShortRows));
    Choice best;
    double least = 0;
    bool first = true;
    for (const i64 asked : {i64{0}, kShortRows}) {
        if (!there(asked) || (any && !holds(asked))) continue;
        const Shape& shape = tables.shape_of(call.head_dim, asked);
        const auto price = [&](i64 tried, Knows of_it) {
            const double us = call_us(of, shape, tried, *pace_of(tables, call.head_dim, asked, of_it), rates);
            if (first || us < least) best = {asked, tried}, least = us, first = false;
        };
        // Without splits more rows than those of a narrow tile are not priced here: rows_of_cta.
        const bool alone = !asked || (by_head && of.rows <= kShortRows);
        const auto take = [&](i64 tried) {
            if (tried > 1 || alone) price(tried, knows);
        };
        if (splits)
            take(splits);
        else
            splits_to_try(of, shape, take);
        if (!splits && may_balance(tables, call, asked)) price(kBalanced, kLengths);
    }
    return best;
}

}  // namespace fmha::planner
