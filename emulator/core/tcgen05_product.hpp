// What the products of the tensor core share: their operands as numbers.
#pragma once

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "tcgen05.hpp"

namespace ptxm::tc {

constexpr u32 kBlockColumns = 16;

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

// The rows of one bank: of A by number, and their words of D.
struct Rows {
    u32 count = 0;
    u32 row[kTmemLanes];
    u32* d[kTmemLanes];
    u32 lane[kTmemLanes];
};
Rows rows_of(const Mma& op, u32 which, u32 bank);

// Rows of A, one a lane of the data path: [bank][row][k], `pitch` from row to row. Those in tensor memory are settled.
void load_a(const Mma& op, Cta& cta, float* out, u32 pitch);
void load_a(const Mma& op, Cta& cta, i32* out, u32 pitch);
// B^T of 32 bytes of K, columns of zero-masked columns cleared: [k][n], `pitch` from k to k. Room for n up to the next
// multiple of 16.
void load_b(const Mma& op, const SharedOperand& b, float* bt, u32 pitch);
void load_b(const Mma& op, const SharedOperand& b, i32* bt, u32 pitch);

// As the dense product: a has shape.k elements a row, bt kMaxN columns a row of K, scale_a kMaxScales a row of the
// path, scale_b a copy for every partition of 32 lanes. All of tensor memory is settled.
void sparse_product(const Mma& op, Cta& cta, const Rows& rows, const float* a, const float* bt, const double* scale_a,
                    const double* scale_b, u32 n);
void sparse_product(const Mma& op, Cta& cta, const Rows& rows, const i32* a, const i32* bt, const double* scale_a,
                    const double* scale_b, u32 n);

// tcgen05_chain.cpp: dense A, kinds without scales. MMAs that add to the same D, one after the other, are multiplied
// together when D is looked at.
void execute_float(const Mma& op);

}  // namespace ptxm::tc
