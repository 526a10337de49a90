// The maximum and the probabilities of a row: of every 16 keys ten have their exponential from the special-function
// unit (MUFU) and six from a polynomial on the FMA pipe, so that both pipes are done at about the same time.
#pragma once

#include <stdint.h>

#include "common/ptx/math.cuh"
#include "sm100/ptx/packed.cuh"

namespace fmha {

constexpr int kGroupKeys = 16;
constexpr int kGroupPairs = kGroupKeys / 2;
constexpr int kPolynomialPairs = 3;  // of a group; the last ones
constexpr int kUnitPairs = kGroupPairs - kPolynomialPairs;

// 2^x of three pairs in steps that go between the ex2 of the others: x = n + r with an integer n and |r| <= 1/2, 2^r by
// a polynomial, whose exponent then gets n added. The polynomial is 1 at 0 and has relative errors of at most 3.0e-6,
// zero in the mean: with one of degree 3 they would be 1.8e-4, which LSE would show. An x below -127 becomes 0.
struct Polynomial {
    static constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: a sum with it is rounded to an integer, in its low bits
    static constexpr int kSteps = 10;

    uint64_t x[kPolynomialPairs];
    uint64_t rounded[kPolynomialPairs];
    uint64_t value[kPolynomialPairs];

    // Step `k` of pair `i`; `pair` is q.k on the way in and probabilities on the way out.
    __device__ __forceinline__ void step(int k, int i, float* pair, uint64_t scale, uint64_t minus_anchor) {
        switch (k) {
            case 0: x[i] = ptx::fma_f32x2(ptx::pack_f32x2(pair[0], pair[1]), scale, minus_anchor); break;
            case 1: {
                const float2 free = ptx::unpack_f32x2(x[i]);
                x[i] = ptx::pack_f32x2(ptx::max_nan(free.x, -127.0f), ptx::max_nan(free.y, -127.0f));
                break;
            }
            case 2: rounded[i] = ptx::add_f32x2(x[i], ptx::pack_f32x2(kRound)); break;
            case 3: value[i] = ptx::sub_f32x2(rounded[i], ptx::pack_f32x2(kRound)); break;
            case 4: x[i] = ptx::sub_f32x2(x[i], value[i]); break;  // r
            case 5:
                value[i] =
                    ptx::fma_f32x2(x[i], ptx::pack_f32x2(0.00962985958904028f), ptx::pack_f32x2(0.05591738969087601f));
                break;
            case 6: value[i] = ptx::fma_f32x2(x[i], value[i], ptx::pack_f32x2(0.24022895097732544f)); break;
            case 7: value[i] = ptx::fma_f32x2(x[i], value[i], ptx::pack_f32x2(0.6931210160255432f)); break;
            case 8: value[i] = ptx::fma_f32x2(x[i], value[i], ptx::pack_f32x2(1.0f)); break;
            case 9: {
                const float2 n = ptx::unpack_f32x2(rounded[i]), p = ptx::unpack_f32x2(value[i]);
                pair[0] = ptx::scale_by_power(p.x, n.x);
                pair[1] = ptx::scale_by_power(p.y, n.y);
                break;
            }
        }
    }
};
static_assert(Polynomial::kSteps == 2 * kUnitPairs && kPolynomialPairs == 3, "a step of each pair behind each ex2");

// Probabilities 2^(q.k scale - anchor) of `Keys` keys, packed to bf16, and their sum in fp32, added to `sum`.
template <int Keys>
__device__ __forceinline__ void exponentiate(float* row, uint32_t (&packed)[Keys / 2], float scale_log2, float anchor,
                                             uint64_t (&sum)[2]) {
    const uint64_t scale = ptx::pack_f32x2(scale_log2), minus_anchor = ptx::pack_f32x2(-anchor);
    const auto exponent = [&](int key) {
        return ptx::unpack_f32x2(ptx::fma_f32x2(ptx::pack_f32x2(row[key], row[key + 1]), scale, minus_anchor));
    };
    const auto pack = [&](int pair) { packed[pair] = ptx::pack_bf16x2(row[2 * pair], row[2 * pair + 1]); };
    const auto add = [&](int pair) {
        sum[pair % 2] = ptx::add_f32x2(sum[pair % 2], ptx::pack_f32x2(row[2 * pair], row[2 * pair + 1]));
    };
    float2 x = exponent(0), next;
#pragma unroll
    for (int first = 0; first < Keys; first += kGroupKeys) {
        Polynomial polynomial;
#pragma unroll
        for (int k = 0; k < 2 * kUnitPairs; ++k) {
            const int before = (first - kGroupKeys) / 2 + k;  // a pair of the group before, whose results are there
            const bool finishes = first > 0 && k < kGroupPairs;
            const auto step = [&](int i) {
                polynomial.step(k, i, row + first + 2 * (kUnitPairs + i), scale, minus_anchor);
            };
            row[first + k] = ptx::exp2(k % 2 == 0 ? x.x : x.y);
            step(0);
            if (finishes) {
                pack(before);
            }
            step(1);
            if (finishes) {
                add(before);
            }
            step(2);
            const int after = k + 2 < 2 * kUnitPairs ? first + k + 2 : first + kGroupKeys;  // the unit's next pair
            if (k % 2 == 0 && after < Keys) {
                next = exponent(after);
            } else if (k % 2 == 1) {
                x = next;
            }
        }
    }
#pragma unroll
    for (int pair = (Keys - kGroupKeys) / 2; pair < Keys / 2; ++pair) {
        pack(pair);
        add(pair);
    }
}

// The maximum of a tile of keys, three values at a time in four chains.
template <int Keys>
__device__ __forceinline__ float max_of_tile(const float (&row)[Keys]) {
    float chain[4] = {row[0], row[1], row[2], row[3]};
#pragma unroll
    for (int i = 4; i + 1 < Keys; i += 2) {
        chain[i / 2 % 4] = ptx::max3(chain[i / 2 % 4], row[i], row[i + 1]);
    }
    return fmaxf(ptx::max3(chain[0], chain[1], chain[2]), chain[3]);
}

}  // namespace fmha
