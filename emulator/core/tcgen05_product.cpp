// D = A B (+ D) over the data path, in f32 (or s32) with products and sums fused; silicon's internal alignment of the
// products of one instruction is not modelled.
#include <bit>
#include <limits>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "tcgen05.hpp"

namespace ptxm::tc {
namespace {

inline float multiply_add(float x, float y, float s) { return __builtin_fmaf(x, y, s); }
inline i32 multiply_add(i32 x, i32 y, i32 s) { return x * y + s; }

// The rows of one bank: of A, and their words of D.
template <class T>
struct Rows {
    u32 count = 0;
    const T* a[kTmemLanes];
    u32* d[kTmemLanes];
    const double* scale[kTmemLanes];
    u32 lane[kTmemLanes];
};

constexpr u32 kBlockColumns = 16;

// sum[j] += a[k] bt[k][j] over 16 columns. One row at a time: what GCC turns into a few vector registers.
template <u32 K, class T>
inline void partial(const T* a, const T* bt, T (&sum)[kBlockColumns]) {
    for (u32 k = 0; k < K; ++k) {
        const T x = a[k];
        const T* b = bt + k * kMaxN;
        for (u32 j = 0; j < kBlockColumns; ++j) sum[j] = multiply_add(x, b[j], sum[j]);
    }
}

// How D is read and written: f32 words, f16 in the low half of a word (PTX ISA 9.7.16.10.4.1), s32 words.
struct F32 {
    static float load(u32 word) { return std::bit_cast<float>(word); }
    static u32 store(float x) { return std::bit_cast<u32>(x); }
};
struct F16 {
    static float load(u32 word) { return half_to_float(static_cast<u16>(word)); }
    static u32 store(float x) { return float_to_half(x); }
};

// 16 sums in a vector register, where the processor has one.
typedef float Floats __attribute__((vector_size(kBlockColumns * sizeof(float))));

// Written out for AVX-512: a copy in two halves would stall the load of the whole.
[[gnu::always_inline]] inline Floats load_floats(const float* from) {
#ifdef __AVX512F__
    return _mm512_loadu_ps(from);
#else
    Floats v;
    std::memcpy(&v, from, sizeof v);
    return v;
#endif
}

[[gnu::always_inline]] inline Floats multiply_add(float x, const Floats& y, const Floats& s) {
#ifdef __AVX512F__
    return _mm512_fmadd_ps(_mm512_set1_ps(x), y, s);
#else
    Floats sum;
    for (u32 j = 0; j < kBlockColumns; ++j) sum[j] = __builtin_fmaf(x, y[j], s[j]);
    return sum;
#endif
}

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

// kRows rows of D, kBlocks blocks of 16 columns: every value of B is used kRows times, every one of A kBlocks times,
// and kRows x kBlocks sums are in flight. Only with these loops unrolled does GCC keep the sums in registers.
template <class D, u32 K, u32 kRows, u32 kBlocks>
inline void float_block(const float (&a)[kRows][K], const float* bt, u32* const* d, u32 column, bool accumulate,
                        float scale) {
    Floats sum[kRows][kBlocks];
#pragma GCC unroll 8
    for (u32 r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (u32 c = 0; c < kBlocks; ++c)
            sum[r][c] = accumulate ? load_sums<D>(d[r] + column + c * kBlockColumns) * scale : Floats{};
    }
    for (u32 k = 0; k < K; ++k) {
        Floats b[kBlocks];
#pragma GCC unroll 2
        for (u32 c = 0; c < kBlocks; ++c) b[c] = load_floats(bt + k * kMaxN + column + c * kBlockColumns);
#pragma GCC unroll 8
        for (u32 r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
            for (u32 c = 0; c < kBlocks; ++c) sum[r][c] = multiply_add(a[r][k], b[c], sum[r][c]);
        }
    }
#pragma GCC unroll 8
    for (u32 r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (u32 c = 0; c < kBlocks; ++c) store_sums<D>(d[r] + column + c * kBlockColumns, sum[r][c]);
    }
}

template <class D, u32 K, u32 kRows>
void float_rows(const float* const* rows, const float* bt, u32* const* d, u32 whole, bool accumulate, float scale) {
    alignas(64) float a[kRows][K];  // side by side: one register addresses them all
    for (u32 r = 0; r < kRows; ++r) std::memcpy(a[r], rows[r], sizeof a[r]);
    u32 column = 0;
    for (; column + 2 * kBlockColumns <= whole; column += 2 * kBlockColumns)
        float_block<D, K, kRows, 2>(a, bt, d, column, accumulate, scale);
    if (column < whole) float_block<D, K, kRows, 1>(a, bt, d, column, accumulate, scale);
}

// The last columns of a row, fewer than 16.
template <class D, u32 K>
inline void float_end(const float* a, const float* bt, u32* d, u32 width, bool accumulate, float scale) {
    float sum[kBlockColumns] = {};
    if (accumulate)
        for (u32 j = 0; j < width; ++j) sum[j] = D::load(d[j]) * scale;
    partial<K>(a, bt, sum);
    for (u32 j = 0; j < width; ++j) d[j] = D::store(sum[j]);
}

template <class D, u32 K>
void float_product(const Mma& op, const Rows<float>& rows, const float* bt, u32 n) {
    constexpr u32 kRows = 8;
    const float scale = 1.0f / static_cast<float>(1u << op.input_scale);
    const u32 whole = n / kBlockColumns * kBlockColumns, eights = rows.count / kRows * kRows;
    for (u32 r = 0; r < eights; r += kRows)
        float_rows<D, K, kRows>(rows.a + r, bt, rows.d + r, whole, op.accumulate, scale);
    for (u32 r = eights; r < rows.count; ++r)
        float_rows<D, K, 1>(rows.a + r, bt, rows.d + r, whole, op.accumulate, scale);
    for (u32 r = 0; r < rows.count && whole < n; ++r)
        float_end<D, K>(rows.a[r], bt + whole, rows.d[r] + whole, n - whole, op.accumulate, scale);
}

i32 saturated(i64 x) {
    return static_cast<i32>(std::clamp<i64>(x, std::numeric_limits<i32>::min(), std::numeric_limits<i32>::max()));
}

void int_product(const Mma& op, const Rows<i32>& rows, const i32* bt, u32 n) {
    for (u32 r = 0; r < rows.count; ++r) {
        for (u32 column = 0; column < n; column += kBlockColumns) {
            const u32 width = std::min(kBlockColumns, n - column);
            i32 sum[kBlockColumns] = {};
            partial<32>(rows.a[r], bt + column, sum);
            u32* d = rows.d[r] + column;
            for (u32 j = 0; j < width; ++j) {
                const i64 total = (op.accumulate ? i64{static_cast<i32>(d[j])} : 0) + sum[j];
                d[j] = static_cast<u32>(op.shape.saturate ? saturated(total) : static_cast<i32>(total));
            }
        }
    }
}

// Sums of 16 columns of kRows rows over K.
template <u32 K, u32 kRows>
[[gnu::always_inline]] inline void block_sums(const float* const* a, u32 from, const float* bt, Floats (&sum)[kRows]) {
#pragma GCC unroll 8
    for (u32 r = 0; r < kRows; ++r) sum[r] = Floats{};
    for (u32 k = 0; k < K; ++k) {
        const Floats b = load_floats(bt + k * kMaxN);
#pragma GCC unroll 8
        for (u32 r = 0; r < kRows; ++r) sum[r] = multiply_add(a[r][from + k], b, sum[r]);
    }
}

// (A scale_A) (B scale_B) + D (PTX ISA 9.7.16.10.7): sums of one block in f32, scaled and added in f64.
template <u32 K, u32 S, u32 kRows>
void scaled_rows(const Mma& op, const Rows<float>& rows, u32 first, const float* bt, const double* scale_b, u32 n) {
    constexpr u32 kBlock = K / S;
    for (u32 column = 0; column < n; column += kBlockColumns) {
        const u32 width = std::min(kBlockColumns, n - column);
        double total[kRows][kBlockColumns] = {};
        if (op.accumulate)
            for (u32 r = 0; r < kRows; ++r)
                for (u32 j = 0; j < width; ++j) total[r][j] = std::bit_cast<float>(rows.d[first + r][column + j]);
        for (u32 s = 0; s < S; ++s) {
            Floats sum[kRows];
            block_sums<kBlock, kRows>(rows.a + first, s * kBlock, bt + s * kBlock * kMaxN + column, sum);
            for (u32 r = 0; r < kRows; ++r) {
                const double scale = rows.scale[first + r][s];
                const double* sb = scale_b + (rows.lane[first + r] / 32 * kMaxScales + s) * kMaxN + column;
                float sums[kBlockColumns];
                std::memcpy(sums, &sum[r], sizeof sums);
                for (u32 j = 0; j < kBlockColumns; ++j) total[r][j] += static_cast<double>(sums[j]) * scale * sb[j];
            }
        }
        for (u32 r = 0; r < kRows; ++r)
            for (u32 j = 0; j < width; ++j)
                rows.d[first + r][column + j] = std::bit_cast<u32>(static_cast<float>(total[r][j]));
    }
}

template <u32 K, u32 S>
void scaled_product(const Mma& op, const Rows<float>& rows, const float* bt, const double* scale_b, u32 n) {
    constexpr u32 kRows = 8;
    u32 r = 0;
    for (; r + kRows <= rows.count; r += kRows) scaled_rows<K, S, kRows>(op, rows, r, bt, scale_b, n);
    for (; r < rows.count; ++r) scaled_rows<K, S, 1>(op, rows, r, bt, scale_b, n);
}

struct Scales {
    double a[kTmemLanes * kMaxScales];
    double b[4 * kMaxScales * kMaxN + kBlockColumns];  // a partition of 32 lanes reads its own copy
};

// Too large for the stack. The padding behind the last column lets whole blocks be computed.
template <class T>
struct Workspace {
    alignas(64) T a[kTmemLanes * kMaxK], bt[kMaxK * kMaxN + kBlockColumns];
    u8 bytes[kMaxN * kRowBytes];  // of A, or of B
    Scales scales;
};

// Not inlined: a thread's variable is looked up wherever it is named.
template <class T>
[[gnu::noinline]] Workspace<T>& workspace() {
    static thread_local Workspace<T> space;
    return space;
}

// B^T, columns of zero-masked columns cleared: [k][kMaxN].
template <class T>
void load_b(const Mma& op, u8* bytes, T* bt) {
    const u32 n = op.shape.n, k = op.shape.k, parts = op.ctas[1] ? 2 : 1;
    if (has_columns(op.b)) {
        const u32 pitch = n * element_bytes(op.shape.b);
        for (u32 p = 0; p < parts; ++p) gather_columns(*op.ctas[p], op.b, bytes + p * (pitch / parts), pitch);
        for (u32 e = 0; e < k; ++e) decode_bytes(op.shape.b, bytes + e * pitch, pitch, bt + e * kMaxN);
    } else {
        for (u32 p = 0; p < parts; ++p) gather(*op.ctas[p], op.b, bytes + p * (n / parts) * kRowBytes);
        decode_transposed(op.shape.b, bytes, n, bt, kMaxN);
    }
    if (op.shape.negate_b)
        for (u32 e = 0; e < k; ++e)
            for (u32 j = 0; j < n; ++j) bt[e * kMaxN + j] = -bt[e * kMaxN + j];
    if (!op.has_mask) return;
    for (u32 j = 0; j < n; ++j)
        if (op.mask.zero[j])
            for (u32 e = 0; e < k; ++e) bt[e * kMaxN + j] = 0;
}

// Rows of A, one a lane of the data path: [bank][row][k].
template <class T>
void load_a(const Mma& op, Cta& cta, u8* rows, T* out) {
    const DataPath& path = op.path;
    const u32 in_bank = path.rows * kRowBytes;
    if (op.mods.a_tmem) {
        for (u32 n = 0; n < path.rows * path.banks; ++n) {
            // .ashift: every row but the last of tensor memory takes the one below it.
            u32 lane = op.d_lane + path.lane_of(n % path.rows, n / path.rows);
            if (op.mods.a_shift && lane + 1 < kTmemLanes) ++lane;
            std::memcpy(rows + n * kRowBytes, cta.tmem.row(lane) + op.a_column, kRowBytes);
        }
    } else {
        gather(cta, op.a, rows);
        for (u32 bank = 1; bank < path.banks; ++bank) std::memcpy(rows + bank * in_bank, rows, in_bank);
    }
    decode_bytes(op.shape.a, rows, path.banks * in_bank, out);
    if (op.shape.negate_a)
        for (u32 e = 0; e < path.rows * path.banks * op.shape.k; ++e) out[e] = -out[e];
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

template <class T>
Rows<T> rows_of(const Mma& op, u32 which, u32 bank, const T* a, const Scales& scales) {
    Rows<T> rows;
    for (u32 r = 0; r < op.path.rows; ++r) {
        const u32 lane = op.d_lane + op.path.lane_of(r, bank);
        if (op.disabled[4 * which + lane / 32] >> (lane % 32) & 1) continue;
        rows.a[rows.count] = a + (bank * op.path.rows + r) * op.shape.k;
        rows.d[rows.count] = op.ctas[which]->tmem.row(lane) + op.d_column;
        rows.scale[rows.count] = scales.a + r * kMaxScales;
        rows.lane[rows.count++] = lane;
    }
    return rows;
}

template <class D>
void float_kinds(const Mma& op, const Rows<float>& rows, const float* bt, u32 n) {
    switch (op.shape.k) {
        case 8: return float_product<D, 8>(op, rows, bt, n);
        case 16: return float_product<D, 16>(op, rows, bt, n);
        default: return float_product<D, 32>(op, rows, bt, n);
    }
}

void product(const Mma& op, const Rows<float>& rows, const float* bt, const Scales& scales, u32 n) {
    if (op.mods.scales == 1) return scaled_product<32, 1>(op, rows, bt, scales.b, n);
    if (op.mods.scales == 2) return scaled_product<64, 2>(op, rows, bt, scales.b, n);
    if (op.mods.scales == 4) return scaled_product<64, 4>(op, rows, bt, scales.b, n);
    if (op.shape.d == Accumulator::f16) return float_kinds<F16>(op, rows, bt, n);
    float_kinds<F32>(op, rows, bt, n);
}

void product(const Mma& op, const Rows<i32>& rows, const i32* bt, const Scales&, u32 n) {
    int_product(op, rows, bt, n);
}

template <class T>
void execute_as(const Mma& op) {
    Workspace<T>& space = workspace<T>();
    double& seconds = op.ctas[0]->cluster->machine->stats.product_seconds;
    load_b(op, space.bytes, space.bt);
    const u32 columns = op.shape.n / op.path.banks;
    for (u32 which = 0; which < 2 && op.ctas[which]; ++which) {
        load_a(op, *op.ctas[which], space.bytes, space.a);
        if (op.mods.scales) load_scales(op, *op.ctas[which], space.scales);
        for (u32 bank = 0; bank < op.path.banks; ++bank) {
            const Rows<T> rows = rows_of(op, which, bank, space.a, space.scales);
            const Stopwatch watch(seconds);
            product(op, rows, space.bt + bank * columns, space.scales, columns);
        }
    }
}

}  // namespace

DataPath data_path(const Modifiers& mods, u32 m) {
    if (mods.pair) return m == 256 ? DataPath{'A', 128, 1, false} : DataPath{'B', 64, 2, false};
    if (m == 128) return {'D', 128, 1, false};
    if (m == 32) return {'G', 32, 4, false};
    return mods.ws ? DataPath{'E', 64, 2, false} : DataPath{'F', 64, 1, true};
}

void execute(const Mma& op) {
    if (op.shape.kind == Kind::i8)
        execute_as<i32>(op);
    else
        execute_as<float>(op);
}

}  // namespace ptxm::tc
