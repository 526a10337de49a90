// Which shape a call without splits takes: the rules of harness/kernel_side/choice.py, line by line.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "cheapest.hpp"

namespace fmha::planner {

constexpr i64 kWideRows = 192, kLongRows = 128;
constexpr double kLongPace = 0.95;
constexpr double kSmallBoxes = 1.15, kNarrowPace = 1.1, kAlike = 1.35;
constexpr i64 kRowTile = 100;  // keys that would take what a row tile takes beside its own
constexpr double kSpread[] = {0.3, 0.8, 1.2, 1.7};
struct Missing {
    double share;
    i64 tiles;
};
constexpr Missing kMissing[] = {{0.1, 600}, {0.4, 450}, {0.75, 250}};

struct OfShape {
    i64 rows;
    double pace;
};
// Of choice.PACKED_PACE; none at other head_dims.
inline std::span<const OfShape> packed_paces(i64 head_dim) {
    static constexpr OfShape k64[] = {{0, 1.0}, {192, 1.15}};
    static constexpr OfShape k128[] = {{0, 1.0}, {192, 1.3}, {64, 1.1}};
    static constexpr OfShape k256[] = {{0, 1.0}, {128, 0.95}, {64, 1.4}};
    if (head_dim == 64) return k64;
    if (head_dim == 128) return k128;
    if (head_dim == 256) return k256;
    return {};
}

inline double wide_pace(i64 head_dim) { return head_dim == 64 ? 1.25 : 1.4; }
inline i64 narrow_rows(i64 head_dim) { return head_dim == 128 ? 250 : head_dim == 256 ? 64 : 0; }

// Queries and keys of planes, and how many have so many.
struct Plane {
    i64 t, s_k;
    double count;
};

// choice._drawn: how many keys' time passes until all row tiles are done.
inline double drawn(const Tables& tables, i64 head_dim, i64 asked, i64 heads, std::span<const Plane> planes,
                    bool windowed) {
    const Shape& shape = tables.shape_of(head_dim, asked);
    static thread_local std::vector<std::pair<i64, double>> each;  // keys of a row tile, and how many have so many
    each.clear();
    for (const Plane& plane : planes) {
        const i64 all_rows = plane.t * heads;
        const auto add = [&](i64 end) {
            const i64 hidden = windowed ? plane.t - divide_up(std::min(end, all_rows), heads) : 0;
            const i64 keys = divide_up(std::max<i64>(plane.s_k - hidden, 1), shape.keys) * shape.keys;
            each.emplace_back(keys + kRowTile, plane.count);
        };
        if (windowed && shape.rows <= shape.keys)
            for (i64 end = std::min(shape.rows, all_rows); end < all_rows + shape.rows; end += shape.rows) add(end);
        else
            for (i64 end = all_rows; end > 0; end -= shape.rows) add(end);
    }
    std::sort(each.begin(), each.end(), std::greater<>());
    const double slots = static_cast<double>(kMultiprocessors * shape.ctas_per_sm);
    double before = 0, total = 0, least = 0;
    for (const auto& [keys, count] : each) {
        before += count;
        total += static_cast<double>(keys) * count;
        const double turns = windowed ? 1.0 : std::ceil(before / slots);
        least = std::max(least, turns * static_cast<double>(keys));
    }
    const double turns = before / slots;
    return std::max(least, total / slots + (std::ceil(turns) - turns) * static_cast<double>(each.back().first));
}

inline double drawn_keys(const Tables& tables, const Call& call, i64 asked) {
    const Plane plane{call.t, call.s_k, static_cast<double>(call.planes())};
    return drawn(tables, call.head_dim, asked, call.group(), {&plane, 1}, call.windowed());
}

inline bool takes_boxes(const Tables& tables, const Call& call, i64 asked) {
    const i64 keys = tables.shape_of(call.head_dim, asked).keys, box = std::gcd(keys, call.page_size);
    return box == keys || box == call.page_size;
}

inline bool is_wide(const Tables& tables, const Call& call) {
    if (call.head_dim != 64 && call.head_dim != 128) return false;
    const double pace = wide_pace(call.head_dim) * (takes_boxes(tables, call, kWideRows) ? 1 : kSmallBoxes);
    return pace * drawn_keys(tables, call, kWideRows) < drawn_keys(tables, call, 0);
}

inline bool is_long(const Tables& tables, const Call& call) {
    if (call.head_dim != 256 || !takes_boxes(tables, call, kLongRows)) return false;
    return kLongPace * drawn_keys(tables, call, kLongRows) < drawn_keys(tables, call, 0);
}

inline bool is_narrow(const Tables& tables, const Call& call, i64 asked) {
    if (call.head_dim != 128 && call.head_dim != 256) return false;
    const i64 all_rows = call.rows();
    // What all keys together are is not asked.
    const double mean = call.ragged ? kUnknown : 1.0;
    if (all_rows <= kShortRows) return cheapest(tables, call, true, mean, 1).asked == kShortRows;
    if (call.head_dim == 256) return false;
    const bool alone = divide_up(all_rows, kShortRows) * call.planes() <= 2 * kMultiprocessors;
    const double pace = (alone ? 1.0 : kNarrowPace) / (asked == kWideRows ? wide_pace(128) : 1.0);
    return pace * drawn_keys(tables, call, kShortRows) <= drawn_keys(tables, call, asked);
}

// choice.rows_of_cta without splits.
inline i64 rows_of_cta(const Tables& tables, const Call& call, bool narrow) {
    const i64 asked = is_wide(tables, call) ? kWideRows : is_long(tables, call) ? kLongRows : 0;
    return narrow && is_narrow(tables, call, asked) ? kShortRows : asked;
}

// choice.few_queries.
inline bool few_queries(const Call& call) {
    const i64 of_all = call.batch * call.t, missing = of_all - call.total_q;
    return std::any_of(std::begin(kMissing), std::end(kMissing), [&](const Missing& m) {
        return static_cast<double>(missing) >= m.share * static_cast<double>(of_all) &&
               missing * call.heads >= 128 * m.tiles;
    });
}

// choice.rows_of_packed: batch entries have `t` queries and `s_k` keys at most, and so many together.
inline i64 rows_of_packed(const Tables& tables, const Call& call, i64 queries, i64 keys) {
    const auto paces = packed_paces(call.head_dim);
    const i64 planes = call.planes();
    if (paces.empty()) return 0;
    if (queries * call.heads < narrow_rows(call.head_dim) * planes) return kShortRows;
    Plane known[5];
    std::size_t count = 0;
    known[count++] = {call.t, call.s_k, static_cast<double>(call.kv_heads)};
    if (call.batch > 1) {
        const double rest =
            static_cast<double>(std::max(queries - call.t, call.batch - 1)) / static_cast<double>(call.batch - 1);
        const bool spread =
            static_cast<double>(call.t) > kAlike * static_cast<double>(queries) / static_cast<double>(call.batch);
        static constexpr double kOne[] = {1.0};
        const std::span<const double> shares = spread ? std::span<const double>(kSpread) : kOne;
        for (const double share : shares) {
            const i64 t = std::min(std::max<i64>(std::llrint(share * rest), 1), call.t);
            const double of_t = static_cast<double>(t * keys) / static_cast<double>(std::max<i64>(queries, 1));
            const i64 s_k = std::min(std::max<i64>(std::llrint(of_t), 1), call.s_k);
            known[count++] = {t, s_k, static_cast<double>(planes - call.kv_heads) / static_cast<double>(shares.size())};
        }
    }
    i64 best = 0;
    double least = 0;
    bool first = true;
    for (const auto& [rows, of_key] : paces) {
        const double pace = of_key * (takes_boxes(tables, call, rows) ? 1 : kSmallBoxes);
        const double time = pace * drawn(tables, call.head_dim, rows, call.group(), {known, count}, call.windowed());
        if (first || time < least) best = rows, least = time, first = false;
    }
    return best;
}

}  // namespace fmha::planner
