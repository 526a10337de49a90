// Chains of MMAs that add to the same D: their operands are read when each completes, their products are summed when D
// is looked at, which reads and writes D once. Sums are the same: fused, in f32, in the order of k.
#include <bit>

#include "tcgen05_product.hpp"

namespace ptxm {
namespace tc {
namespace {

// How D is read and written: f32 words, f16 in the low half of a word (PTX ISA 9.7.16.10.4.1).
struct F32 {
    static float load(u32 word) { return std::bit_cast<float>(word); }
    static u32 store(float x) { return std::bit_cast<u32>(x); }
};
struct F16 {
    static float load(u32 word) { return half_to_float(static_cast<u16>(word)); }
    static u32 store(float x) { return float_to_half(x); }
};

template <class D>
[[gnu::always_inline]] inline Floats load_sums(const u32* d) {
    if constexpr (std::is_same_v<D, F32>) return load_floats(reinterpret_cast<const float*>(d));
    float x[kBlockColumns];
    for (u32 j = 0; j < kBlockColumns; ++j) x[j] = D::load(d[j]);
    return load_floats(x);
}

template <class D>
[[gnu::always_inline]] inline void store_sums(u32* d, const Floats& sum) {
    if constexpr (std::is_same_v<D, F32>) {
        std::memcpy(d, &sum, sizeof sum);
    } else {
        for (u32 j = 0; j < kBlockColumns; ++j) d[j] = D::store(sum[j]);
    }
}

constexpr u32 kChainK = 128;
// Of A, from row to row, and of B, from k to k: they start in different cache sets.
constexpr u32 kAPitch = kChainK + kBlockColumns, kBPitch = kMaxN + kBlockColumns;

}  // namespace

struct Chain {
    Chain() {}  // leaves the arrays as they are
    Mma first;
    u32 depth = 0;  // of K
    alignas(64) float a[2][kTmemLanes * kAPitch];
    alignas(64) float bt[kChainK * kBPitch];
};

namespace {

struct Sums {
    u32 depth;
    bool accumulate;
    float scale;
};

// kRows rows of D, adjacent in A, kBlocks blocks of 16 columns: every value of B is used kRows times, every one of A
// kBlocks times, and kRows x kBlocks sums are in flight. Only with these loops unrolled does GCC keep the sums in
// registers.
template <class D, u32 kRows, u32 kBlocks>
void float_block(const Sums& s, const float* a, const float* bt, u32* const* d, u32 column) {
    Floats sum[kRows][kBlocks];
#pragma GCC unroll 8
    for (u32 r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
        for (u32 c = 0; c < kBlocks; ++c)
            sum[r][c] = s.accumulate ? load_sums<D>(d[r] + column + c * kBlockColumns) * s.scale : Floats{};
    }
    for (const float* const end = a + s.depth; a != end; ++a, bt += kBPitch) {
        asm("" : "+r"(a));  // one register for all rows of A: GCC would count in each, on ports that the sums need
        Floats b[kBlocks];
#pragma GCC unroll 3
        for (u32 c = 0; c < kBlocks; ++c) b[c] = load_floats(bt + c * kBlockColumns);
#pragma GCC unroll 8
        for (u32 r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
            for (u32 c = 0; c < kBlocks; ++c) sum[r][c] = multiply_add(a[r * kAPitch], b[c], sum[r][c]);
        }
    }
#pragma GCC unroll 8
    for (u32 r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
        for (u32 c = 0; c < kBlocks; ++c) store_sums<D>(d[r] + column + c * kBlockColumns, sum[r][c]);
    }
}

// The last columns of a row, fewer than 16.
template <class D>
void float_end(const Sums& s, const float* a, const float* bt, u32* d, u32 width) {
    float sum[kBlockColumns] = {};
    if (s.accumulate)
        for (u32 j = 0; j < width; ++j) sum[j] = D::load(d[j]) * s.scale;
    for (u32 k = 0; k < s.depth; ++k)
        for (u32 j = 0; j < kBlockColumns; ++j) sum[j] = __builtin_fmaf(a[k], bt[k * kBPitch + j], sum[j]);
    for (u32 j = 0; j < width; ++j) d[j] = D::store(sum[j]);
}

// Eight rows from `r` on, of `kBlocks` blocks of columns; one where lanes that are disabled leave a gap. Returns how
// many it were.
template <class D, u32 kBlocks>
u32 float_rows(const Sums& s, const Rows& rows, u32 r, const float* a, const float* bt, u32 column) {
    constexpr u32 kRows = 8;
    const float* from = a + rows.row[r] * kAPitch;
    if (r + kRows <= rows.count && rows.row[r + kRows - 1] == rows.row[r] + kRows - 1) {
        float_block<D, kRows, kBlocks>(s, from, bt + column, rows.d + r, column);
        return kRows;
    }
    float_block<D, 1, kBlocks>(s, from, bt + column, rows.d + r, column);
    return 1;
}

// How many blocks of 16 columns are taken together where so many are left. Three keep the FMA units busiest.
u32 blocks_at_once(u32 left) { return left >= 3 && left != 4 ? 3 : std::min(left, 2u); }

// Some blocks of columns at a time. All of a shallow B fits the first-level cache, where D is best taken row by row; of
// a deep one only the columns at hand do.
template <class D>
void float_product(const Sums& s, const Rows& rows, const float* a, const float* bt, u32 n) {
    constexpr u32 kShallow = 32;
    const u32 blocks = n / kBlockColumns, whole = blocks * kBlockColumns;
    const auto rows_from = [&](u32 r, u32 block, u32 together) {
        const u32 column = block * kBlockColumns;
        return together == 3   ? float_rows<D, 3>(s, rows, r, a, bt, column)
               : together == 2 ? float_rows<D, 2>(s, rows, r, a, bt, column)
                               : float_rows<D, 1>(s, rows, r, a, bt, column);
    };
    if (s.depth <= kShallow) {
        for (u32 r = 0, done = 0; blocks && r < rows.count; r += done)
            for (u32 block = 0, together = 0; block < blocks; block += together) {
                together = blocks_at_once(blocks - block);
                done = rows_from(r, block, together);
            }
    } else {
        for (u32 block = 0, together = 0; block < blocks; block += together) {
            together = blocks_at_once(blocks - block);
            for (u32 r = 0; r < rows.count;) r += rows_from(r, block, together);
        }
    }
    for (u32 r = 0; whole < n && r < rows.count; ++r)
        float_end<D>(s, a + rows.row[r] * kAPitch, bt + whole, rows.d[r] + whole, n - whole);
}

void multiply(const Chain& chain) {
    const Mma& op = chain.first;
    const Sums s{chain.depth, op.accumulate, 1.0f / static_cast<float>(1u << op.input_scale)};
    const u32 columns = op.shape.n / op.path.banks;
    const Stopwatch watch(op.ctas[0]->cluster->machine->stats.product_seconds);
    for (u32 which = 0; which < 2 && op.ctas[which]; ++which) {
        for (u32 bank = 0; bank < op.path.banks; ++bank) {
            const Rows rows = rows_of(op, which, bank);
            const float* bt = chain.bt + bank * columns;
            if (op.shape.d == Accumulator::f16)
                float_product<F16>(s, rows, chain.a[which], bt, columns);
            else
                float_product<F32>(s, rows, chain.a[which], bt, columns);
        }
    }
}

// Whether an MMA goes on where the chain is: its D is what the chain's will be. Sums in f16 are rounded after each MMA.
bool continues(const Chain& chain, const Mma& op) {
    const Mma& first = chain.first;
    return op.accumulate && op.input_scale == 0 && op.shape.d == Accumulator::f32 &&
           first.shape.d == Accumulator::f32 && chain.depth + op.shape.k <= kChainK && op.shape.n == first.shape.n &&
           op.d_column == first.d_column && op.d_lane == first.d_lane && op.path.layout == first.path.layout &&
           op.disabled == first.disabled && op.ctas == first.ctas;
}

}  // namespace

void execute_float(const Mma& op) {
    Tmem& owner = op.ctas[0]->tmem;
    const auto each_tmem = [&](auto f) {
        for (Cta* cta : op.ctas)
            if (cta) f(cta->tmem);
    };
    if (op.mods.a_tmem) each_tmem([&](Tmem& t) { t.settle(op.a_column, kRowColumns); });
    if (owner.unsettled.owner != &owner || !continues(*owner.chain, op)) {
        each_tmem([](Tmem& t) { t.settle(0, Tmem::kColumns); });
        if (!owner.chain) owner.chain = std::make_shared<Chain>();
        owner.chain->first = op;
        owner.chain->depth = 0;
    }
    Chain& chain = *owner.chain;
    load_b(op, op.b, chain.bt + chain.depth * kBPitch, kBPitch);
    for (u32 which = 0; which < 2 && op.ctas[which]; ++which)
        load_a(op, *op.ctas[which], chain.a[which] + chain.depth, kAPitch);
    chain.depth += op.shape.k;
    each_tmem([&](Tmem& t) { t.unsettled = {&owner, op.d_column, op.shape.n / op.path.banks}; });
}

}  // namespace tc

void Tmem::multiply_unsettled() {
    tc::Chain& chain = *unsettled.owner->chain;
    for (Cta* cta : chain.first.ctas)
        if (cta) cta->tmem.unsettled = {};
    tc::multiply(chain);
}

}  // namespace ptxm
