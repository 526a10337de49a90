// The sums of tcgen05.mma as a B200 makes them, in the model of github.com/sf-tensor/tcgen05, which its authors checked
// against 46 million results of one (tcgen05_model/MODEL.md there). All products of an instruction and D are aligned to
// the largest exponent among them, truncated toward zero 25 bits below it, and added; the sum is truncated to f32, or
// rounded to f16 (aligned_sum.hpp). A product's exponent is the sum of its factors' and its scales', those of denormals
// being their formats' least. Zero has no sign. D times 2^-n (scale-input-d), which they did not try, is aligned as it
// is.
//
// This file does any numbers, eight columns at a time.
#include <cmath>

#include "aligned_sum.hpp"
#include "tcgen05_silicon.hpp"

namespace ptxm::tc {
namespace {

using aligned_sum::Addends, aligned_sum::exponent_of, aligned_sum::power_of_two;

constexpr u32 kWide = aligned_sum::kColumns;
constexpr aligned_sum::Precision kPrecision = aligned_sum::kSixteenBits;

int least_exponent(Format f) {
    switch (f) {
        case Format::f16:
        case Format::e5m2: return -14;
        case Format::e4m3: return -6;
        case Format::e3m2: return -2;
        case Format::e2m3:
        case Format::e2m1: return 0;
        default: return -126;
    }
}

// How D is read: times 2^-lower.
struct Before {
    Accumulator type;
    bool accumulate;
    int lower;
};

Addends load_addends(const Before& before, const u32* d) {
    if (!before.accumulate) return {std::array<float, kWide>{}.data(), 0};
    const bool half = before.type == Accumulator::f16;
    float x[kWide];
    for (u32 j = 0; j < kWide; ++j) x[j] = half ? half_to_float(static_cast<u16>(d[j])) : std::bit_cast<float>(d[j]);
    return {x, half ? -14 : -126};
}

void lower(Addends& c, u32 j, int by) {
    c.value[j] *= power_of_two(-by);
    c.exponent[j] -= by;
}

void store_sums(Accumulator type, const double* sum, u32* d) {
    if (type == Accumulator::f16) {
        for (u32 j = 0; j < kWide; ++j) d[j] = aligned_sum::to_half(sum[j]);
        return;
    }
    float x[kWide];
    aligned_sum::to_floats(sum, kPrecision.kept, x);
    for (u32 j = 0; j < kWide; ++j) d[j] = std::bit_cast<u32>(x[j] + 0.0f);  // a denormal may have become -0
}

// What is stored of a row of A, and the rows of B that it multiplies.
struct Stored {
    u32 count;
    const float* a;
    int least;  // exponent of a
    const u16* k;
};

void add_row(const Before& before, const Stored& row, const aligned_sum::Columns& b, u32* d) {
    Addends c = load_addends(before, d);
    for (u32 j = 0; before.lower && j < kWide; ++j) lower(c, j, before.lower);
    double sum[kWide];
    aligned_sum::add(kPrecision.fraction, row.count, row.a, row.least, row.k, b, c, sum);
    store_sums(before.type, sum, d);
}

// Every product has the scale of the row and of its column: D is aligned to products without. A scale is a power of two
// or NaN.
void add_scaled_row(const Before& before, const Stored& row, const aligned_sum::Columns& b, double scale_a,
                    const double* scale_b, u32* d) {
    Addends c = load_addends(before, d);
    double scale[kWide], sum[kWide];
    for (u32 j = 0; j < kWide; ++j) {
        scale[j] = scale_a * scale_b[j];
        if (!std::isnan(scale[j])) lower(c, j, std::ilogb(scale[j]));
    }
    aligned_sum::add(kPrecision.fraction, row.count, row.a, row.least, row.k, b, c, sum);
    for (u32 j = 0; j < kWide; ++j) sum[j] *= scale[j];
    store_sums(before.type, sum, d);
}

constexpr std::array<u16, kMaxK> kInOrder = [] {
    std::array<u16, kMaxK> k{};
    for (u16 e = 0; e < kMaxK; ++e) k[e] = e;
    return k;
}();

// A chain's MMAs, one after the other.
class ChainProduct {
public:
    ChainProduct(const Sums& s, const Instruction& shape, const Rows& rows, const float* a, const float* bt,
                 u32 columns)
        : s_(s), shape_(shape), rows_(rows), a_(a), bt_(bt), exponents_(exponents()) {
        vectors_ = shape.d == Accumulator::f32 && s.scale == 1.0f && columns >= kBlockColumns;
        if (!vectors_) return;
        silicon::pack_a(a, *std::max_element(rows.row, rows.row + rows.count) + 1, s.depth, least_a_, exponents_);
        silicon::pack_b(bt, columns / kBlockColumns * kBlockColumns, s.depth, least_b_, exponents_);
    }

    void multiply(const RowRange& range, const Columns& columns) const {
        const u32 blocks = columns.count / kBlockColumns, whole = blocks * kBlockColumns;
        for (u32 done = 0; done < s_.depth; done += s_.group) {
            const silicon::Group group{a_, bt_, done, s_.group, done || s_.accumulate};
            const bool quick = vectors_ && blocks &&
                               silicon::add_with_vectors(exponents_, group, rows_.row + range.first, range.count,
                                                         rows_.d + range.first, columns.first, blocks);
            multiply_any(range, {columns.first + (quick ? whole : 0), columns.count - (quick ? whole : 0)}, done);
        }
    }

private:
    // Too large for the stack. Not inlined: a thread's variable is looked up wherever it is named.
    [[gnu::noinline]] static silicon::Exponents& exponents() {
        static thread_local silicon::Exponents e;
        return e;
    }

    void multiply_any(const RowRange& range, const Columns& columns, u32 done) const {
        const Before before{shape_.d, done || s_.accumulate, done ? 0 : -exponent_of(s_.scale, -126)};
        for (u32 column = columns.first; column < columns.first + columns.count; column += kWide) {
            const aligned_sum::Columns b(bt_ + done * kBPitch + column, s_.group, kBPitch, least_b_);
            for (u32 r = range.first; r < range.first + range.count; ++r) {
                const Stored row{s_.group, a_ + rows_.row[r] * kAPitch + done, least_a_, kInOrder.data()};
                add_row(before, row, b, rows_.d[r] + column);
            }
        }
    }

    const Sums& s_;
    const Instruction& shape_;
    const Rows& rows_;
    const float *a_, *bt_;
    silicon::Exponents& exponents_;
    const int least_a_ = least_exponent(shape_.a), least_b_ = least_exponent(shape_.b);
    bool vectors_;
};

}  // namespace

void multiply_as_silicon(const Sums& s, const Instruction& shape, const Rows& rows, const float* a, const float* bt,
                         u32 columns) {
    const ChainProduct product(s, shape, rows, a, bt, columns);
    // All of K of some columns of B stays in the first-level cache.
    constexpr u32 kMost = silicon::kBlocksAtOnce * kBlockColumns;
    for (u32 column = 0; column < columns; column += kMost) {
        const Columns block{column, std::min(kMost, columns - column)};
        for (u32 r = 0, count = 0; r < rows.count; r += count) {
            count = r + silicon::kRowsAtOnce <= rows.count ? silicon::kRowsAtOnce : 1;
            product.multiply({r, count}, block);
        }
    }
}

void silicon_product(const Mma& op, Cta& cta, const Rows& rows, const float* a, const float* bt, const double* scale_a,
                     const double* scale_b, u32 n) {
    const Instruction& shape = op.shape;
    if (shape.kind == Kind::mxf4 || shape.kind == Kind::mxf4nvf4)
        return silicon_product_of_four_bits(op, cta, rows, a, bt, scale_a, scale_b, n);
    const int least_a = least_exponent(shape.a), least_b = least_exponent(shape.b);
    const Before before{shape.d, op.accumulate, static_cast<int>(op.input_scale)};
    u16 at[kTmemLanes][kMaxK];
    for (u32 r = 0; r < rows.count; ++r) positions(op, cta, rows.lane[r], at[r]);
    for (u32 column = 0; column < n; column += kWide) {
        const aligned_sum::Columns b(bt + column, op.mods.sparse ? 2 * shape.k : shape.k, kMaxN, least_b);
        for (u32 r = 0; r < rows.count; ++r) {
            const Stored row{shape.k, a + rows.row[r] * shape.k, least_a, at[r]};
            u32* d = rows.d[r] + column;
            if (op.mods.scales)
                add_scaled_row(before, row, b, scale_a[rows.row[r] % op.path.rows * kMaxScales],
                               scale_b + rows.lane[r] / 32 * kMaxScales * kMaxN + column, d);
            else
                add_row(before, row, b, d);
        }
    }
}

}  // namespace ptxm::tc
