// D = A B (+ D) over the data path: integers, and what has scales in f32 with products and sums fused.
#include "ptx/tcgen05/product/product.hpp"

#include <bit>
#include <limits>

#include "machine/machine.hpp"
#include "machine/stopwatch.hpp"

namespace ptxm::tc {
namespace {

i32 saturated(i64 x) {
    return static_cast<i32>(std::clamp<i64>(x, std::numeric_limits<i32>::min(), std::numeric_limits<i32>::max()));
}

constexpr u32 kIntK = 32, kPairs = kIntK / 2;

// Numbers of 8 bits as pairs of 16: two products are added at once.
u32 pair(i32 low, i32 high) { return (static_cast<u32>(low) & 0xFFFF) | static_cast<u32>(high) << 16; }

typedef i32 Ints __attribute__((vector_size(kVectorColumns * sizeof(i32))));

[[gnu::always_inline]] inline Ints add_pairs(u32 x, const u32* y, const Ints& sum) {
#if defined(__AVX512BW__)
    return sum + std::bit_cast<Ints>(_mm512_madd_epi16(_mm512_set1_epi32(static_cast<i32>(x)), _mm512_loadu_si512(y)));
#elif defined(__AVX2__) && defined(__FMA__)
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(y));
    const __m256i products = _mm256_madd_epi16(_mm256_set1_epi32(static_cast<i32>(x)), pairs);
    return sum + std::bit_cast<Ints>(products);
#else
    const auto low = [](u32 w) { return i32{static_cast<std::int16_t>(w)}; };
    const auto high = [](u32 w) { return i32{static_cast<std::int16_t>(w >> 16)}; };
    Ints out = sum;
    for (u32 j = 0; j < kVectorColumns; ++j) out[j] += low(x) * low(y[j]) + high(x) * high(y[j]);
    return out;
#endif
}

// Sums of 32 products are exact in 32 bits; the accumulator may wrap or be saturated.
void add_sums(const Mma& op, const Ints& sum, u32* d, u32 width) {
    for (u32 j = 0; j < width; ++j) {
        const i64 total = (op.accumulate ? i64{static_cast<i32>(d[j])} : 0) + sum[j];
        d[j] = static_cast<u32>(op.shape.saturate ? saturated(total) : static_cast<i32>(total));
    }
}

template <u32 kRows>
void int_rows(const Mma& op, const Rows& rows, u32 first, const u32* a, const u32* b, u32 n) {
    for (u32 column = 0; column < n; column += kVectorColumns) {
        Ints sum[kRows] = {};
        for (u32 k = 0; k < kPairs; ++k) {
#pragma GCC unroll 8
            for (u32 r = 0; r < kRows; ++r)
                sum[r] = add_pairs(a[rows.row[first + r] * kPairs + k], b + k * kMaxN + column, sum[r]);
        }
        for (u32 r = 0; r < kRows; ++r)
            add_sums(op, sum[r], rows.d[first + r] + column, std::min(kVectorColumns, n - column));
    }
}

void int_product(const Mma& op, const Rows& rows, const i32* a, const i32* bt, u32 n) {
    constexpr u32 kRows = 8;
    alignas(64) u32 pairs_a[kTmemLanes * kPairs], pairs_b[kPairs * kMaxN + kBlockColumns];
    for (u32 k = 0; k < kTmemLanes * kPairs; ++k) pairs_a[k] = pair(a[2 * k], a[2 * k + 1]);
    for (u32 k = 0; k < kPairs; ++k)
        for (u32 j = 0; j < n; ++j) pairs_b[k * kMaxN + j] = pair(bt[2 * k * kMaxN + j], bt[(2 * k + 1) * kMaxN + j]);
    u32 r = 0;
    for (; r + kRows <= rows.count; r += kRows) int_rows<kRows>(op, rows, r, pairs_a, pairs_b, n);
    for (; r < rows.count; ++r) int_rows<1>(op, rows, r, pairs_a, pairs_b, n);
}

// Sums of a vector's columns of kRows rows over K, in the order of multiply_vectors.
template <u32 K, u32 kRows>
[[gnu::always_inline]] inline void block_sums(const float* const* a, u32 from, const float* bt, Floats (&sum)[kRows]) {
    Floats parts[2][kRows] = {};
    for (u32 k = 0; k < K; k += 2) {
#pragma GCC unroll 2
        for (u32 odd = 0; odd < 2; ++odd) {
            const Floats b = load_floats(bt + (k + odd) * kMaxN);
#pragma GCC unroll 8
            for (u32 r = 0; r < kRows; ++r) parts[odd][r] = multiply_add(a[r][from + k + odd], b, parts[odd][r]);
        }
    }
#pragma GCC unroll 8
    for (u32 r = 0; r < kRows; ++r) sum[r] = parts[0][r] + parts[1][r];
}

struct Scales {
    double a[kTmemLanes * kMaxScales];
    double b[4 * kMaxScales * kMaxN + kBlockColumns];  // a partition of 32 lanes reads its own copy
};

// (A scale_A) (B scale_B) + D (PTX ISA 9.7.16.10.7): sums of one block in f32, scaled and added in f64.
template <u32 K, u32 S, u32 kRows>
void scaled_rows(const Mma& op, const Rows& rows, u32 first, const float* a, const float* bt, const Scales& scales,
                 u32 n) {
    constexpr u32 kBlock = K / S;
    const float* x[kRows];
    for (u32 r = 0; r < kRows; ++r) x[r] = a + rows.row[first + r] * K;
    for (u32 column = 0; column < n; column += kBlockColumns) {
        const u32 width = std::min(kBlockColumns, n - column);
        double total[kRows][kBlockColumns] = {};
        if (op.accumulate)
            for (u32 r = 0; r < kRows; ++r)
                for (u32 j = 0; j < width; ++j) total[r][j] = std::bit_cast<float>(rows.d[first + r][column + j]);
        for (u32 s = 0; s < S; ++s) {
            float sums[kRows][kBlockColumns];
            for (u32 j = 0; j < kBlockColumns; j += kVectorColumns) {
                Floats sum[kRows];
                block_sums<kBlock, kRows>(x, s * kBlock, bt + s * kBlock * kMaxN + column + j, sum);
                for (u32 r = 0; r < kRows; ++r) std::memcpy(sums[r] + j, &sum[r], sizeof sum[r]);
            }
            for (u32 r = 0; r < kRows; ++r) {
                const double scale = scales.a[rows.row[first + r] % op.path.rows * kMaxScales + s];
                const double* sb = scales.b + (rows.lane[first + r] / 32 * kMaxScales + s) * kMaxN + column;
                for (u32 j = 0; j < kBlockColumns; ++j) total[r][j] += static_cast<double>(sums[r][j]) * scale * sb[j];
            }
        }
        for (u32 r = 0; r < kRows; ++r)
            for (u32 j = 0; j < width; ++j)
                rows.d[first + r][column + j] = std::bit_cast<u32>(canonical(static_cast<float>(total[r][j])));
    }
}

template <u32 K, u32 S>
void scaled_product(const Mma& op, const Rows& rows, const float* a, const float* bt, const Scales& scales, u32 n) {
    constexpr u32 kRows = kBlockVectors == 1 ? 8 : 4;
    u32 r = 0;
    for (; r + kRows <= rows.count; r += kRows) scaled_rows<K, S, kRows>(op, rows, r, a, bt, scales, n);
    for (; r < rows.count; ++r) scaled_rows<K, S, 1>(op, rows, r, a, bt, scales, n);
}

// One byte a row and block: row r of a matrix in lane r % 32 of each partition, column r / 32 (PTX ISA 9.7.16.10.7).
void load_scales(const Mma& op, Cta& cta, Scales& out) {
    const auto byte = [&](u32 lane, u32 column, u32 id) {
        return static_cast<u8>(cta.tmem.row(lane)[column] >> (8 * id));
    };
    const bool e8m0 = op.shape.scales_e8m0;
    for (u32 s = 0; s < op.mods.scales; ++s) {
        for (u32 r = 0; r < op.path.rows; ++r) {
            const u32 lane = op.path.lane_of(r, 0);
            out.a[r * kMaxScales + s] =
                decode_scale(byte(lane / 32 * 32 + r % 32, op.scale_a + r / 32, op.shape.scale_a_id + s), e8m0);
        }
        for (u32 p = 0; p < 4; ++p)
            for (u32 n = 0; n < op.shape.n; ++n)
                out.b[(p * kMaxScales + s) * kMaxN + n] =
                    decode_scale(byte(32 * p + n % 32, op.scale_b + n / 32, op.shape.scale_b_id + s), e8m0);
    }
}

// Too large for the stack. The padding behind the last column lets whole blocks be computed.
template <class T>
struct Workspace {
    alignas(64) T a[kTmemLanes * kMaxK], bt[2 * kMaxK * kMaxN + kBlockColumns];
    Scales scales;
};

// Not inlined: a thread's variable is looked up wherever it is named.
template <class T>
[[gnu::noinline]] Workspace<T>& workspace() {
    static thread_local Workspace<T> space;
    return space;
}

void product(const Mma& op, const Rows& rows, const Workspace<float>& space, const float* bt, u32 n) {
    if (op.mods.scales == 1) return scaled_product<32, 1>(op, rows, space.a, bt, space.scales, n);
    if (op.mods.scales == 2) return scaled_product<64, 2>(op, rows, space.a, bt, space.scales, n);
    scaled_product<64, 4>(op, rows, space.a, bt, space.scales, n);
}

void product(const Mma& op, const Rows& rows, const Workspace<i32>& space, const i32* bt, u32 n) {
    int_product(op, rows, space.a, bt, n);
}

template <class T>
void execute_as(const Mma& op) {
    Workspace<T>& space = workspace<T>();
    double& seconds = op.ctas[0]->cluster->machine->stats.product_seconds;
    load_b(op, op.b, space.bt, kMaxN);
    if (op.mods.sparse) load_b(op, op.b_second, space.bt + op.shape.k * kMaxN, kMaxN);
    const u32 columns = op.shape.n / op.path.banks;
    for (u32 which = 0; which < 2 && op.ctas[which]; ++which) {
        Cta& cta = *op.ctas[which];
        cta.tmem.settle(0, Tmem::kColumns);
        load_a(op, cta, space.a, op.shape.k);
        if (op.mods.scales) load_scales(op, cta, space.scales);
        for (u32 bank = 0; bank < op.path.banks; ++bank) {
            const Rows rows = rows_of(op, which, bank);
            const Stopwatch watch(seconds);
            const T* bt = space.bt + bank * columns;
            const double *scale_a = space.scales.a, *scale_b = space.scales.b + bank * columns;
            if constexpr (std::is_same_v<T, float>) {
                if (op.sums == MmaSums::silicon) {
                    silicon_product(op, cta, rows, space.a, bt, scale_a, scale_b, columns);
                    continue;
                }
            }
            if (op.mods.sparse)
                sparse_product(op, cta, rows, space.a, bt, scale_a, scale_b, columns);
            else
                product(op, rows, space, bt, columns);
        }
    }
}

}  // namespace

void execute(const Mma& op) {
    if (op.shape.kind == Kind::i8) return execute_as<i32>(op);
    if (op.mods.scales || op.mods.sparse) return execute_as<float>(op);
    execute_float(op);
}

}  // namespace ptxm::tc
