// The sums of kind::mxf4 and kind::mxf4nvf4 as a B200 makes them: the rules for scales of UE8M0 and of UE4M3 in the
// model of github.com/sf-tensor/tcgen05 (see ptx/tcgen05/product/silicon/silicon.cpp). K falls into groups of 16, each
// with one scale for A and one for B. The exponent of a scale is the one it is stored with, so is that of an element,
// at least 0.
//
// Where D's exponent is no less than any product's, the window ends 35 bits below it; groups are summed exactly, then
// truncated to it. Otherwise it ends 35 bits below the largest exponent of a pair of scales whose group has a product
// that is not zero: elements reach 6, so no product's exponent is more than 4 above that, and 39 bits below the largest
// product lie no higher. Groups are truncated to it: with UE4M3 fours of them, with UE8M0 all 16, and where D's
// exponent is no less than those of the group's products, 35 bits below D.
#include <cmath>

#include "machine/cluster/cluster.hpp"
#include "numbers/aligned_sum.hpp"
#include "ptx/tcgen05/product/product.hpp"

namespace ptxm::tc {
namespace {

using aligned_sum::power_of_two;

constexpr u32 kDepth = 64, kFour = 4, kFours = kDepth / kFour, kGroup = 16, kGroups = kDepth / kGroup;
constexpr int kNone = -10000;  // the exponent of zero
constexpr int kWindow = 35, kKept = 24;

// Of one row and one column.
struct Element {
    double four[kFours];  // exact sums of products without scales
    int top[kGroups];     // the largest exponent of a group's products without scales
    double scale[kGroups];
    int scale_exponent[kGroups];
};

double truncated(double x, int to) { return std::trunc(x * power_of_two(-to)); }

double group_sum(const Element& e, u32 g) {
    double sum = 0;
    for (u32 q = 0; q < kGroup / kFour; ++q) sum += e.four[g * (kGroup / kFour) + q];
    return sum * e.scale[g];
}

float finish(double units, int unit) { return aligned_sum::to_float(units * power_of_two(unit), kKept) + 0.0f; }

// In units of 2^unit, where products have the larger exponents; `highest`: of the scales.
double sum_of_groups(const Element& e, float c, int exponent, int unit, double (&units)[kGroups]) {
    double total = truncated(c, unit);
    for (u32 g = 0; g < kGroups; ++g) {
        const bool below = e.top[g] != kNone && exponent >= e.top[g] + e.scale_exponent[g];
        const int end = below ? std::max(unit, exponent - kWindow) : unit;
        units[g] = truncated(group_sum(e, g), end) * power_of_two(end - unit);
        total += units[g];
    }
    return total;
}

// A sum that would be denormal leaves out the groups below 2^-174.
float sum_with_powers(const Element& e, float c, int exponent, int highest) {
    constexpr int kFloor = -174;
    const int unit = highest - kWindow;
    double units[kGroups];
    const double total = sum_of_groups(e, c, exponent, unit, units);
    const float sum = finish(total, unit);
    if (sum == 0 || std::abs(sum) >= 0x1p-126f) return sum;
    double kept = truncated(c, unit);
    for (double part : units)
        if (std::abs(part) >= power_of_two(std::max(kFloor - unit, 0))) kept += part;
    return finish(kept, unit);
}

float sum_with_fractions(const Element& e, float c, int highest) {
    const int unit = highest - kWindow;
    double total = truncated(c, unit);
    for (u32 q = 0; q < kFours; ++q) total += truncated(e.four[q] * e.scale[q / (kGroup / kFour)], unit);
    return finish(total, unit);
}

float sum_below(const Element& e, float c, int exponent) {
    const int unit = exponent - kWindow;
    double total = truncated(c, unit);
    for (u32 g = 0; g < kGroups; ++g) total += truncated(group_sum(e, g), unit);
    return finish(total, unit);
}

float sum(const Element& e, float c, bool powers) {
    int largest = kNone, highest = kNone;
    for (u32 g = 0; g < kGroups; ++g) {
        if (std::isnan(e.scale[g])) return canonical_nan();
        if (e.top[g] == kNone) continue;
        largest = std::max(largest, e.top[g] + e.scale_exponent[g]);
        highest = std::max(highest, e.scale_exponent[g]);
    }
    if (!std::isfinite(c) || largest == kNone) return canonical(c + 0.0f);
    const int exponent = aligned_sum::exponent_of(c, -126);
    if (exponent >= largest) return sum_below(e, c, exponent);
    return powers ? sum_with_powers(e, c, exponent, highest) : sum_with_fractions(e, c, highest);
}

// Of one row and some columns: what is the same for all scales. The columns' loops vectorise.
struct Products {
    static constexpr u32 kWide = 16;
    float four[kFours][kWide] = {};  // exact: multiples of 1/4 up to 144
    i32 top[kGroups][kWide];

    Products(const float* a, const u16* k, const float* bt) {
        for (auto& group : top) std::fill(std::begin(group), std::end(group), kNone);
        for (u32 i = 0; i < kDepth; ++i) {
            if (a[i] == 0) continue;
            const float* b = bt + k[i] * kMaxN;
            const i32 exponent = aligned_sum::exponent_of(a[i], 0);
            for (u32 j = 0; j < kWide; ++j) four[i / kFour][j] += a[i] * b[j];
            for (u32 j = 0; j < kWide; ++j) {
                i32& at = top[i / kGroup][j];
                at = std::max(at, exponent + aligned_sum::exponent_of(b[j], 0));
            }
        }
        for (auto& group : top)
            for (i32& at : group) at = at < 0 ? kNone : at;
    }
};

}  // namespace

void silicon_product_of_four_bits(const Mma& op, Cta& cta, const Rows& rows, const float* a, const float* bt,
                                  const double* scale_a, const double* scale_b, u32 n) {
    const bool powers = op.shape.scales_e8m0;
    const u32 scales = op.mods.scales;
    const auto scale_exponent = [powers](double x) { return std::max(std::ilogb(x), powers ? -127 : -6); };
    u16 k[kMaxK];
    for (u32 r = 0; r < rows.count; ++r) {
        positions(op, cta, rows.lane[r], k);
        const float* row = a + rows.row[r] * kDepth;
        const double* sa = scale_a + rows.row[r] % op.path.rows * kMaxScales;
        const double* sb = scale_b + rows.lane[r] / 32 * kMaxScales * kMaxN;
        for (u32 column = 0; column < n; column += Products::kWide) {
            const Products products(row, k, bt + column);
            for (u32 j = 0; j < std::min(Products::kWide, n - column); ++j) {
                Element e;
                for (u32 q = 0; q < kFours; ++q) e.four[q] = products.four[q][j];
                for (u32 g = 0; g < kGroups; ++g) {
                    const u32 s = g * scales / kGroups;
                    const double of_b = sb[s * kMaxN + column + j];
                    e.top[g] = products.top[g][j];
                    e.scale[g] = sa[s] * of_b;
                    e.scale_exponent[g] = scale_exponent(sa[s]) + scale_exponent(of_b);
                }
                u32& d = rows.d[r][column + j];
                d = std::bit_cast<u32>(sum(e, op.accumulate ? std::bit_cast<float>(d) : 0.0f, powers));
            }
        }
    }
}

}  // namespace ptxm::tc
