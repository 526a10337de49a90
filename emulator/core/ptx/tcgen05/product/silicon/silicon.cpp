// The sums of tcgen05.mma as a B200 makes them, in the model of github.com/sf-tensor/tcgen05, which its authors checked
// against 46 million results of one (tcgen05_model/MODEL.md there). All products of an instruction and D are aligned to
// the largest exponent among them, truncated toward zero 25 bits below it, and added; the sum is truncated to f32, or
// rounded to f16 (numbers/aligned_sum.hpp). A product's exponent is the sum of its factors' and its scales', those of
// denormals being their formats' least. Zero has no sign. D times 2^-n (scale-input-d), which they did not try, is
// aligned as it is.
//
// This file does any numbers, eight columns at a time.
#include "ptx/tcgen05/product/silicon/silicon.hpp"

#include <cmath>

#include "machine/cluster/cluster.hpp"
#include "numbers/aligned_sum.hpp"

namespace ptxm::tc {
namespace {

using aligned_sum::Addends, aligned_sum::exponent_of, aligned_sum::power_of_two;

constexpr u32 kWide = aligned_sum::kColumns;
constexpr aligned_sum::Precision kPrecision = aligned_sum::kSixteenBits;

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

// Too large for the stack. Not inlined: a thread's variable is looked up wherever it is named.
[[gnu::noinline]] silicon::Exponents& exponents() {
    static thread_local silicon::Exponents e;
    return e;
}

void pack(const silicon::Operands& o, const Rows& rows, u32 columns, u32 depth, const Instruction& shape,
          silicon::Exponents& out) {
    const u32 last = *std::max_element(rows.row, rows.row + rows.count);
    silicon::pack_a(o, last + 1, depth, least_exponent(shape.a), out);
    silicon::pack_b(o, columns / kBlockColumns * kBlockColumns, depth, least_exponent(shape.b), out);
}

// product.multiply(rows, columns) over D, in parts as vectors take them. All of K of some columns of B stays in the
// first-level cache.
template <class Product>
void multiply_parts(const Product& product, const Rows& rows, u32 columns) {
    if (!product.vectors()) return product.multiply({0, rows.count}, {0, columns});
    constexpr u32 kMost = silicon::kBlocksAtOnce * kBlockColumns;
    for (u32 column = 0; column < columns; column += kMost) {
        const Columns block{column, std::min(kMost, columns - column)};
        for (u32 r = 0, count = 0; r < rows.count; r += count) {
            count = r + silicon::kRowsAtOnce <= rows.count ? silicon::kRowsAtOnce : 1;
            product.multiply({r, count}, block);
        }
    }
}

// How many of these columns vectors have done.
u32 done_with_vectors(const silicon::Group& g, const Rows& rows, const RowRange& range, const Columns& columns) {
    const u32 blocks = columns.count / kBlockColumns;
    const bool done = blocks && silicon::add_with_vectors(exponents(), g, rows.row + range.first, range.count,
                                                          rows.d + range.first, columns.first, blocks);
    return done ? blocks * kBlockColumns : 0;
}

// A chain's MMAs, one after the other.
class ChainProduct {
public:
    ChainProduct(const Sums& s, const Instruction& shape, const Rows& rows, const float* a, const float* bt,
                 u32 columns)
        : s_(s), shape_(shape), rows_(rows), operands_{a, bt, kAPitch, kBPitch} {
        vectors_ = rows.count && shape.d == Accumulator::f32 && s.scale == 1.0f && columns >= kBlockColumns;
        if (vectors_) pack(operands_, rows, columns, s.depth, shape, exponents());
    }

    bool vectors() const { return vectors_; }

    void multiply(const RowRange& range, const Columns& columns) const {
        for (u32 done = 0; done < s_.depth; done += s_.group) {
            const silicon::Group group{operands_, done, s_.group, done || s_.accumulate};
            const u32 quick = vectors_ ? done_with_vectors(group, rows_, range, columns) : 0;
            multiply_any(range, {columns.first + quick, columns.count - quick}, done);
        }
    }

private:
    void multiply_any(const RowRange& range, const Columns& columns, u32 done) const {
        const Before before{shape_.d, done || s_.accumulate, done ? 0 : -exponent_of(s_.scale, -126)};
        for (u32 column = columns.first; column < columns.first + columns.count; column += kWide) {
            const aligned_sum::Columns b(operands_.bt + done * kBPitch + column, s_.group, kBPitch, least_b_);
            for (u32 r = range.first; r < range.first + range.count; ++r) {
                const Stored row{s_.group, operands_.a + rows_.row[r] * kAPitch + done, least_a_, kInOrder.data()};
                add_row(before, row, b, rows_.d[r] + column);
            }
        }
    }

    const Sums& s_;
    const Instruction& shape_;
    const Rows& rows_;
    const silicon::Operands operands_;
    const int least_a_ = least_exponent(shape_.a), least_b_ = least_exponent(shape_.b);
    bool vectors_;
};

struct Scales {
    const double *a, *b;
    const double* of_columns(u32 partition) const { return b + partition * kMaxScales * kMaxN; }
};

// The binary exponents of scales; false where one is NaN.
bool find_exponents(const double* scale, u32 count, i32* out) {
    bool all = true;
    for (u32 j = 0; j < count; ++j) {
        all &= !std::isnan(scale[j]);
        out[j] = std::isnan(scale[j]) ? 0 : std::ilogb(scale[j]);
    }
    return all;
}

// One MMA whose A is sparse or that has scales.
class MmaProduct {
public:
    MmaProduct(const Mma& op, Cta& cta, const Rows& rows, const float* a, const float* bt, const Scales& scales, u32 n)
        : op_(op), rows_(rows), operands_{a, bt, op.shape.k, kMaxN}, scales_(scales) {
        for (u32 r = 0; r < rows.count; ++r) positions(op, cta, rows.lane[r], at_[r]);
        vectors_ = rows.count && !op.mods.sparse && n >= kBlockColumns;
        for (u32 p = 0; vectors_ && p < kPartitions; ++p)
            vectors_ = find_exponents(scales.of_columns(p), n, exponent_b_[p]);
        if (!vectors_) return;
        pack(operands_, rows, n, op.shape.k, op.shape, exponents());
        for (u32 r = 0; r < rows.count; ++r)
            finite_a_[r] = find_exponents(&scale_of_row(r), 1, &exponent_a_[rows.row[r]]);
    }

    bool vectors() const { return vectors_; }

    void multiply(const RowRange& range, const Columns& columns) const {
        if (!vectors_) return multiply_any(range, columns);
        const u32 last = range.first + range.count - 1, partition = rows_.lane[last] / kLanes;
        bool quick = rows_.lane[range.first] / kLanes == partition;
        for (u32 r = range.first; r <= last; ++r) quick &= finite_a_[r];
        const silicon::Group group{operands_, 0, op_.shape.k, op_.accumulate, exponent_a_, exponent_b_[partition]};
        const u32 done = quick ? done_with_vectors(group, rows_, range, columns) : 0;
        multiply_any(range, {columns.first + done, columns.count - done});
    }

private:
    static constexpr u32 kPartitions = kTmemLanes / kLanes;

    const double& scale_of_row(u32 r) const { return scales_.a[rows_.row[r] % op_.path.rows * kMaxScales]; }

    void multiply_any(const RowRange& range, const Columns& columns) const {
        const Instruction& shape = op_.shape;
        const Before before{shape.d, op_.accumulate, static_cast<int>(op_.input_scale)};
        const u32 depth = op_.mods.sparse ? 2 * shape.k : shape.k;
        for (u32 column = columns.first; column < columns.first + columns.count; column += kWide) {
            const aligned_sum::Columns b(operands_.bt + column, depth, kMaxN, least_exponent(shape.b));
            for (u32 r = range.first; r < range.first + range.count; ++r) {
                const Stored row{shape.k, operands_.a + rows_.row[r] * shape.k, least_exponent(shape.a), at_[r]};
                u32* d = rows_.d[r] + column;
                if (op_.mods.scales)
                    add_scaled_row(before, row, b, scale_of_row(r), scales_.of_columns(rows_.lane[r] / kLanes) + column,
                                   d);
                else
                    add_row(before, row, b, d);
            }
        }
    }

    const Mma& op_;
    const Rows& rows_;
    const silicon::Operands operands_;
    const Scales scales_;
    u16 at_[kTmemLanes][kMaxK];
    i32 exponent_a_[kTmemLanes], exponent_b_[kPartitions][kMaxN + kBlockColumns];
    bool finite_a_[kTmemLanes], vectors_;
};

}  // namespace

void multiply_as_silicon(const Sums& s, const Instruction& shape, const Rows& rows, const float* a, const float* bt,
                         u32 columns) {
    const ChainProduct product(s, shape, rows, a, bt, columns);
    multiply_parts(product, rows, columns);
}

void silicon_product(const Mma& op, Cta& cta, const Rows& rows, const float* a, const float* bt, const double* scale_a,
                     const double* scale_b, u32 n) {
    if (op.shape.kind == Kind::mxf4 || op.shape.kind == Kind::mxf4nvf4)
        return silicon_product_of_four_bits(op, cta, rows, a, bt, scale_a, scale_b, n);
    const MmaProduct product(op, cta, rows, a, bt, {scale_a, scale_b}, n);
    multiply_parts(product, rows, n);
}

}  // namespace ptxm::tc
