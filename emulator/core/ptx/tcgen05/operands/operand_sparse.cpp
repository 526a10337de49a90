// A with 50% zeros (PTX ISA 9.7.16.10.8): shared or tensor memory holds the other half of each row, tensor memory the
// positions. The ISA draws the layout of this metadata; in text it is CuTe's (tmem_e_frg, tmem_e_frg_ws).
#include <bit>
#include <limits>
#include <numeric>

#include "machine/cluster/cluster.hpp"
#include "ptx/mma/sparsity.hpp"
#include "ptx/tcgen05/product/product.hpp"

namespace ptxm::tc {
namespace {

constexpr u32 kNibble = 4, kWordNibbles = 8;

// Nibble j of the metadata of the row in `lane`: 8 a row in one column where a lane of each pair of rows eight apart
// holds half of both, else 16 in the row's own lane.
u32 nibble(const Mma& op, Cta& cta, u32 lane, u32 j) {
    if (metadata_width(op.shape.kind) == 2)
        return cta.tmem.row(lane)[op.metadata + j / kWordNibbles] >> (kNibble * (j % kWordNibbles)) & 0xF;
    const u32 half = kWordNibbles / 2, from = (lane & ~8u) + j / half * 8,
              shift = (lane & 8) * 2 + kNibble * (j % half);
    return cta.tmem.row(from)[op.metadata] >> shift & 0xF;
}

}  // namespace

void positions(const Mma& op, Cta& cta, u32 lane, u16* k) {
    if (!op.mods.sparse) return std::iota(k, k + op.shape.k, u16{0});
    const u32 groups = metadata_width(op.shape.kind) * kWordNibbles;
    const Sparsity s = op.shape.kind == Kind::tf32 ? Sparsity::one_of_two
                       : op.shape.k == 2 * groups  ? Sparsity::two_of_four
                                                   : Sparsity::pairs_of_eight;
    for (u32 j = 0; j < groups; ++j) k = chunk_positions(s, j, nibble(op, cta, lane, j), k);
}

namespace {

u32 float_word(const Mma& op, float x) {
    return op.shape.d == Accumulator::f16 ? float_to_half(x) : std::bit_cast<u32>(canonical(x));
}

float float_of(const Mma& op, u32 word) {
    return op.shape.d == Accumulator::f16 ? half_to_float(static_cast<u16>(word)) : std::bit_cast<float>(word);
}

// Over the elements that are stored, in the order of multiply_vectors.
void stored_sums(u32 count, const float* a, const u16* k, const float* bt, u32 n, float* sum) {
    float parts[2][kMaxN] = {};
    for (u32 e = 0; e < count; ++e) {
        const float* b = bt + k[e] * kMaxN;
        float* part = parts[e % 2];
        for (u32 j = 0; j < n; ++j) part[j] = __builtin_fmaf(a[e], b[j], part[j]);
    }
    for (u32 j = 0; j < n; ++j) sum[j] = parts[0][j] + parts[1][j];
}

void plain_row(const Mma& op, const float* a, const u16* k, const float* bt, u32* d, u32 n) {
    const float scale = 1.0f / static_cast<float>(1u << op.input_scale);
    float sum[kMaxN];
    stored_sums(op.shape.k, a, k, bt, n, sum);
    for (u32 j = 0; j < n; ++j) d[j] = float_word(op, (op.accumulate ? float_of(op, d[j]) * scale : 0.0f) + sum[j]);
}

// Sums of one block of K in f32, scaled and added in f64, as with a dense A. A block is twice as long.
void scaled_row(const Mma& op, const Rows& rows, u32 r, const float* a, const u16* k, const float* bt,
                const double* scale_a, const double* scale_b, u32 n) {
    const u32 blocks = op.mods.scales, stored = op.shape.k / blocks;
    const double* sb = scale_b + rows.lane[r] / 32 * kMaxScales * kMaxN;
    double total[kMaxN];
    u32* d = rows.d[r];
    for (u32 j = 0; j < n; ++j) total[j] = op.accumulate ? std::bit_cast<float>(d[j]) : 0.0f;
    for (u32 s = 0; s < blocks; ++s) {
        float sum[kMaxN];
        stored_sums(stored, a + s * stored, k + s * stored, bt, n, sum);
        for (u32 j = 0; j < n; ++j) total[j] += static_cast<double>(sum[j]) * scale_a[s] * sb[s * kMaxN + j];
    }
    for (u32 j = 0; j < n; ++j) d[j] = std::bit_cast<u32>(canonical(static_cast<float>(total[j])));
}

}  // namespace

u32 metadata_width(Kind kind) { return kind == Kind::f16 || kind == Kind::tf32 ? 1 : 2; }

void sparse_product(const Mma& op, Cta& cta, const Rows& rows, const float* a, const float* bt, const double* scale_a,
                    const double* scale_b, u32 n) {
    u16 k[kMaxK];
    for (u32 r = 0; r < rows.count; ++r) {
        positions(op, cta, rows.lane[r], k);
        const float* row = a + rows.row[r] * op.shape.k;
        if (op.mods.scales)
            scaled_row(op, rows, r, row, k, bt, scale_a + rows.row[r] % op.path.rows * kMaxScales, scale_b, n);
        else
            plain_row(op, row, k, bt, rows.d[r], n);
    }
}

void sparse_product(const Mma& op, Cta& cta, const Rows& rows, const i32* a, const i32* bt, const double*,
                    const double*, u32 n) {
    u16 k[kMaxK];
    for (u32 r = 0; r < rows.count; ++r) {
        positions(op, cta, rows.lane[r], k);
        const i32* row = a + rows.row[r] * op.shape.k;
        for (u32 j = 0; j < n; ++j) {
            i64 sum = op.accumulate ? static_cast<i32>(rows.d[r][j]) : 0;
            for (u32 e = 0; e < op.shape.k; ++e) sum += i64{row[e]} * bt[k[e] * kMaxN + j];
            constexpr i64 low = std::numeric_limits<i32>::min(), high = std::numeric_limits<i32>::max();
            rows.d[r][j] = static_cast<u32>(op.shape.saturate ? std::clamp(sum, low, high) : sum);
        }
    }
}

}  // namespace ptxm::tc
