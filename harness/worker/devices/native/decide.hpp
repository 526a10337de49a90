// Which kernel runs a call, in how many splits: harness/attention/decision.py and variant_for of
// harness/kernel_side/variants.py, for Hopper and what parse.hpp takes.
#pragma once

#include <optional>

#include "cheapest.hpp"
#include "launch.hpp"
#include "rows.hpp"

namespace fmha::planner {

// Of the variants that are right, the one of `asked` rows, else the first.
struct Found {
    const Tables& tables;
    std::size_t first = SIZE_MAX, asked = SIZE_MAX;
    void add(std::size_t place, i64 rows) {
        if (first == SIZE_MAX) first = place;
        if (asked == SIZE_MAX && tables.variants[place].asked == rows) asked = place;
    }
    std::optional<std::size_t> best() const {
        if (asked != SIZE_MAX) return asked;
        return first == SIZE_MAX ? std::optional<std::size_t>{} : first;
    }
};

// variants._ordering.
inline std::optional<std::size_t> ordering(const Tables& tables, const Call& call, i64 rows, bool balanced) {
    Found found{tables};
    for (std::size_t i = 0; i < tables.variants.size(); ++i) {
        const Variant& v = tables.variants[i];
        if (v.head_dim != call.head_dim || !v.by_length || v.paged != call.scattered()) continue;
        if (rows && rows != v.rows) continue;
        if (balanced && (v.asked > kShortRows || call.rows() > v.rows)) continue;
        found.add(i, rows);
    }
    return found.best();
}

// The rest of variants.variant_for.
inline std::optional<std::size_t> variant_for(const Tables& tables, const Call& call, i64 rows, bool heads,
                                              i64 splits) {
    const auto fits = [&](const Variant& v) {
        return v.head_dim == call.head_dim && v.by_head == heads && v.paged == call.scattered() && !v.by_length &&
               (!rows || rows == v.rows);
    };
    Found found{tables};
    for (std::size_t i = 0; i < tables.variants.size(); ++i)
        if (fits(tables.variants[i])) found.add(i, rows);
    const auto chosen = found.best();
    if (!chosen) return {};
    const i64 wanted = call.windowed() || splits == 1 ? kDense : kPlain;
    for (i64 kind = wanted; kind >= kWhole; --kind)
        for (std::size_t i = tables.variants.size(); i-- > 0;) {
            const Variant& v = tables.variants[i];
            if (fits(v) && v.asked == tables.variants[*chosen].asked && v.kind == kind) return i;
        }
    return {};
}

// launch.choose_splits, of windows with both sides.
inline i64 windowed_splits(const Tables& tables, const Call& call, const Variant& variant) {
    const i64 ctas = divide_up(call.rows(), variant.rows) * call.planes();
    const i64 seen = divide_up(variant.rows, call.group()) + call.left + call.right;
    const i64 tiles = divide_up(std::min(call.s_k, seen), variant.keys);
    const i64 room = kMultiprocessors * tables.shape_of(call.head_dim, variant.asked).ctas_per_sm / ctas;
    return std::max<i64>(1, std::min(room, tiles / kLeastTilesASplit));
}

inline std::optional<Decision> decide(const Tables& tables, const Call& call) {
    Decision d;
    bool heads = call.kv_heads > 1 || call.q_gaps || call.scattered();
    const bool both = call.left != kUnlimited && call.right != kUnlimited;
    i64 splits = std::max<i64>(call.asked_splits, 1);
    Choice cheap{0, splits};
    if (!both && !call.asked_splits) cheap = cheapest(tables, call, heads, mean_of(call), 0), splits = cheap.splits;
    if (splits == kBalanced) {
        const Shape& shape = tables.shape_of(call.head_dim, cheap.asked);
        d.balance_ctas = kMultiprocessors * shape.ctas_per_sm;
        d.part_tiles = divide_up(kPartKeys, shape.keys);
        splits = 1;
        heads = true;
    }
    std::optional<std::size_t> variant;
    const bool ragged = call.packed_q() && splits == 1 && call.head_dim < 512 && few_queries(call);
    if (d.balance_ctas) {
        variant = ordering(tables, call, cheap.asked, true);
    } else {
        i64 rows;
        if (splits > 1)
            rows = cheapest(tables, call, heads, mean_of(call), splits).asked;
        else if (call.packed_q())
            rows = rows_of_packed(tables, call, call.total_q, call.packed_k() ? call.total_k : call.batch * call.s_k);
        else
            rows = rows_of_cta(tables, call, heads);
        variant = ragged ? ordering(tables, call, rows, false) : variant_for(tables, call, rows, heads, splits);
    }
    if (!variant) return {};
    d.variant = *variant;
    d.splits = splits;
    if (both && !call.asked_splits) d.splits = windowed_splits(tables, call, tables.variants[*variant]);
    return d;
}

}  // namespace fmha::planner
