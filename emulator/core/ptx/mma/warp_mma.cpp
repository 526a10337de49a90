// mma.sync: D = A B + C over the fragments of one warp (PTX ISA 9.7.14.5). A sparse A (9.7.14.6) is stored as a dense
// one of half the K, and multiplies the rows of B that its metadata names.
//
// Floating-point sums: see numbers/aligned_sum.hpp. ptxas makes of e4m3 and e5m2 two instructions of f16, for sm_90a
// and sm_100a alike, of which the first has the elements 0 and 1 of each register and starts from zero; C is added at
// the end. Integer sums are exact and wrap, or saturate under .satfinite.
//
// Where blocks of K have scales (9.7.14.3), whose order of sums was never measured, a block's products are added in the
// order of K in f64, scaled, and added to C; the sum is rounded once.
#include <limits>
#include <numeric>

#include "isa/handlers.hpp"
#include "numbers/aligned_sum.hpp"
#include "numbers/single.hpp"
#include "ptx/mma/sparsity.hpp"

namespace ptxm {
namespace {

constexpr u32 kMaxK = 256, kN = 8;
constexpr u32 kMaxStored = 64;  // elements of a row of A, bits left aside

struct Shape {
    ElementType d, a, b, c;
    u32 m, k;
    bool sparse;
    u32 stored() const { return sparse ? k / 2 : k; }
};

Shape shape_of(const Inst& i) {
    const auto type = [&](u32 shift) { return static_cast<ElementType>(i.mods >> shift & 0xF); };
    return {type(kMmaDShift),          type(kMmaAShift),           type(kMmaBShift),
            type(kMmaCShift),          i.mods & kMmaM8 ? 8u : 16u, static_cast<u32>(i.immediate),
            (i.mods & kMmaSparse) != 0};
}

// f(row or k, column, raw bits) for every element of a fragment of elements of up to 32 bits.
template <u32 bits, class F>
void each_a(Warp& w, const i32* units, const Shape& s, F f) {
    constexpr u32 per = 32 / bits;
    const u32 registers = s.m * s.stored() / per / kLanes;
    for (u32 r = 0; r < registers; ++r) {
        const u32* raw = w.reg<u32>(units[r]);
        for (u32 l = 0; l < kLanes; ++l) {
            for (u32 e = 0; e < per; ++e) {
                const fragment::Position p = fragment::a(s.m, per, l, r, e);
                f(p.row, p.column, raw[l] >> (e * bits));
            }
        }
    }
}

template <u32 bits, class F>
void each_b(Warp& w, const i32* units, const Shape& s, F f) {
    constexpr u32 per = 32 / bits;
    const u32 registers = s.k * kN / per / kLanes;
    for (u32 r = 0; r < registers; ++r) {
        const u32* raw = w.reg<u32>(units[r]);
        for (u32 l = 0; l < kLanes; ++l) {
            for (u32 e = 0; e < per; ++e) {
                const fragment::Position p = fragment::b(per, l, r, e);
                f(p.row, p.column, raw[l] >> (e * bits));
            }
        }
    }
}

// f(lane, element, row, column) for every element of an accumulator.
template <class F>
void each_d(const Shape& s, F f) {
    for (u32 l = 0; l < kLanes; ++l) {
        for (u32 e = 0; e < s.m * kN / kLanes; ++e) {
            const fragment::Position p = fragment::d(l, e);
            f(l, e, p.row, p.column);
        }
    }
}

u32 a_registers(const Shape& s) { return s.m * s.stored() * container_bits(s.a) / 32 / kLanes; }
u32 b_registers(const Shape& s) { return s.k * kN * container_bits(s.b) / 32 / kLanes; }

// The row of B that each element of A multiplies.
struct Positions {
    u16 k[16][kMaxStored];
    Positions(Warp& w, const Inst& i, const Shape& s) : Positions(w, i, s, sparsity_of(s.a)) {}
    Positions(Warp& w, const Inst& i, const Shape& s, Sparsity kind) {
        if (!s.sparse) {
            std::iota(k[0], k[0] + s.k, u16{0});
            for (u32 row = 1; row < s.m; ++row) std::memcpy(k[row], k[0], sizeof k[0]);
            return;
        }
        const u32* metadata = w.reg<u32>(w.ops(i)[i.n_dst + i.n_src - 1]);
        for (u32 row = 0; row < s.m; ++row)
            sparse_positions(kind, s.k / chunk_elements(kind), i.mods >> kMmaSelectorShift & 3, metadata, row, k[row],
                             container_bits(s.a) <= 8);
    }
};

// A row's sums: `d` is C and becomes D, as f32.
struct FloatSums {
    const Shape& s;
    const aligned_sum::Columns& b;
    int least_a;

    static float to_half(double sum) { return half_to_float(aligned_sum::to_half(sum)); }
    void add(u32 terms, const float* a, const u16* k, ElementType c, float (&d)[kN]) const {
        double sum[kN];
        aligned_sum::add(aligned_sum::kSixteenBits.fraction, terms, a, least_a, k, b, {d, least_exponent(c)}, sum);
        if (s.d != ElementType::f16) return aligned_sum::to_floats(sum, aligned_sum::kSixteenBits.kept, d);
        for (u32 n = 0; n < kN; ++n) d[n] = to_half(sum[n]);
    }
    void row(const float* a, const u16* k, float (&d)[kN]) const {
        if (container_bits(s.a) != 8) return add(s.stored(), a, k, s.c, d);
        float sum[kN] = {};
        for (u32 half = 0; half < 2; ++half) {
            float values[kMaxStored];
            u16 rows[kMaxStored];
            u32 terms = 0;
            for (u32 e = 0; e < s.stored(); ++e) {
                if (e % 4 / 2 != half) continue;
                values[terms] = a[e];
                rows[terms++] = k[e];
            }
            add(terms, values, rows, s.d, sum);
        }
        for (u32 n = 0; n < kN; ++n)
            d[n] = s.d == ElementType::f16 ? to_half(double{d[n]} + double{sum[n]}) : one_nan(d[n] + sum[n]);
    }
};

Flow mma_float(Warp& w, const Inst& i, u32 mask) {
    need_full_warp(mask, "mma");
    const Shape s = shape_of(i);
    const i32* o = w.ops(i);
    const i32 *ua = o + i.n_dst, *ub = ua + a_registers(s), *uc = ub + b_registers(s);
    alignas(32) float a[16][32], b[64][kN], d[16][kN];
    const Positions at(w, i, s);
    element::with_float(s.a, [&](auto bits, auto decode) {
        each_a<bits.value>(w, ua, s, [&](u32 row, u32 k, u32 raw) { a[row][k] = decode(raw); });
    });
    element::with_float(s.b, [&](auto bits, auto decode) {
        each_b<bits.value>(w, ub, s, [&](u32 k, u32 n, u32 raw) { b[k][n] = decode(raw); });
    });
    each_d(s, [&](u32 l, u32 e, u32 row, u32 column) {
        d[row][column] =
            s.c == ElementType::f16 ? half_to_float(w.reg<u16>(uc[e / 2])[2 * l + e % 2]) : w.reg<float>(uc[e])[l];
    });
    // Of eight bits, those of f16, to which they are converted.
    const auto least = [](ElementType t) { return least_exponent(container_bits(t) == 8 ? ElementType::f16 : t); };
    const aligned_sum::Columns columns(&b[0][0], s.k, kN, least(s.b));
    const FloatSums sums{s, columns, least(s.a)};
    for (u32 row = 0; row < s.m; ++row) sums.row(a[row], at.k[row], d[row]);
    each_d(s, [&](u32 l, u32 e, u32 row, u32 column) {
        if (s.d == ElementType::f16) {
            if (o[e / 2] >= 0) w.reg<u16>(o[e / 2])[2 * l + e % 2] = float_to_half(d[row][column]);
        } else if (o[e] >= 0) {
            w.reg<float>(o[e])[l] = d[row][column];
        }
    });
    return Flow::next;
}

// Scales of the rows of A, or of the columns of B (PTX ISA 9.7.14.3). Of the four lanes of a group the selectors name
// one for B, which has those of the column that is the group's number, and two for A, of the group's row and of that
// eight below; and the byte of the lane's word where they begin.
struct Scales {
    double of[16][4];
    // `units`: of the words, of the selected byte and of the selected threads.
    Scales(Warp& w, const Inst& i, const i32* units, u32 rows, u32 count) {
        const u32 byte = selector(w, units[1], "byte"), thread = selector(w, units[2], "thread");
        const u32 threads = rows == 16 ? 2 : 4;
        if (byte % count || byte + count > 4 || thread >= threads)
            throw Fault("scale-selector", format("%u scales a row from byte %u of thread %u: bytes go up to 3 in steps "
                                                 "of %u, threads to %u",
                                                 count, byte, thread, count, threads - 1));
        const u32* words = w.reg<u32>(units[0]);
        for (u32 row = 0; row < rows; ++row) {
            const u32 word = words[row % 8 * 4 + (rows == 16 ? 2 * thread + row / 8 : thread)];
            for (u32 n = 0; n < count; ++n)
                of[row][n] = decode_scale(static_cast<u8>(word >> 8 * (byte + n)), !(i.mods & kMmaScalesE4m3));
        }
    }

private:
    static u32 selector(Warp& w, i32 unit, const char* what) {
        const u16* values = w.reg<u16>(unit);
        for (u32 l = 1; l < kLanes; ++l)
            if (values[2 * l] != values[0])
                throw Fault("scale-selector", format("the selected %s is %u in lane 0 and %u in lane %u", what,
                                                     values[0], values[2 * l], l));
        return values[0];
    }
};

Flow mma_scaled(Warp& w, const Inst& i, u32 mask) {
    need_full_warp(mask, "mma");
    const Shape s = shape_of(i);
    const bool packed = i.mods & kMmaPacked;
    const u32 per = packed ? 8 : 4, count = 1u << ((i.mods >> kMmaScalesShift & 3) - 1);
    const i32* o = w.ops(i);
    const i32 *ua = o + i.n_dst, *ub = ua + s.m * s.stored() / per / kLanes, *uc = ub + s.k * kN / per / kLanes;
    const Scales of_a(w, i, uc + 4, s.m, count), of_b(w, i, uc + 7, kN, count);
    const Positions at(w, i, s, packed ? Sparsity::pairs_of_eight : Sparsity::two_of_four);
    double a[16][kMaxStored], b[128][kN];
    const auto into = [](auto& matrix, const auto& decode) {
        return [&](u32 row, u32 column, u32 raw) { matrix[row][column] = decode(raw); };
    };
    if (packed) {
        const auto decode = [t = numbers_of_bytes(ElementType::e2m1).data()](u32 raw) { return t[(raw & 0xF) << 2]; };
        each_a<4>(w, ua, s, into(a, decode));
        each_b<4>(w, ub, s, into(b, decode));
    } else {
        element::with_float(s.a, [&](auto, auto decode) { each_a<8>(w, ua, s, into(a, decode)); });
        element::with_float(s.b, [&](auto, auto decode) { each_b<8>(w, ub, s, into(b, decode)); });
    }
    float result[4][kLanes];
    each_d(s, [&](u32 l, u32 e, u32 row, u32 column) {
        double block[4] = {}, sum = w.reg<float>(uc[e])[l];
        for (u32 k = 0; k < s.stored(); ++k) block[at.k[row][k] * count / s.k] += a[row][k] * b[at.k[row][k]][column];
        for (u32 n = 0; n < count; ++n) sum += block[n] * (of_a.of[row][n] * of_b.of[column][n]);
        result[e][l] = one_nan(static_cast<float>(sum));
    });
    for (u32 e = 0; e < i.n_dst; ++e)
        if (o[e] >= 0) std::memcpy(w.reg<float>(o[e]), result[e], sizeof result[e]);
    return Flow::next;
}

i32 finish_integer(i64 sum, bool saturate) {
    if (!saturate) return static_cast<i32>(static_cast<u64>(sum));
    return static_cast<i32>(std::clamp<i64>(sum, std::numeric_limits<i32>::min(), std::numeric_limits<i32>::max()));
}

Flow mma_integer(Warp& w, const Inst& i, u32 mask) {
    need_full_warp(mask, "mma");
    const Shape s = shape_of(i);
    const i32* o = w.ops(i);
    const i32 *ua = o + i.n_dst, *ub = ua + a_registers(s), *uc = ub + b_registers(s);
    i32 a[16][kMaxStored], b[128][kN];
    const Positions at(w, i, s);
    element::with_integer(s.a, [&](auto bits, auto decode) {
        each_a<bits.value>(w, ua, s, [&](u32 row, u32 k, u32 raw) { a[row][k] = decode(raw); });
    });
    element::with_integer(s.b, [&](auto bits, auto decode) {
        each_b<bits.value>(w, ub, s, [&](u32 k, u32 n, u32 raw) { b[k][n] = decode(raw); });
    });
    i32 result[4][kLanes];
    each_d(s, [&](u32 l, u32 e, u32 row, u32 column) {
        i64 sum = w.reg<i32>(uc[e])[l];
        for (u32 k = 0; k < s.stored(); ++k) sum += a[row][k] * b[at.k[row][k]][column];
        result[e][l] = finish_integer(sum, i.mods & kMmaSat);
    });
    for (u32 e = 0; e < i.n_dst; ++e)
        if (o[e] >= 0) std::memcpy(w.reg<i32>(o[e]), result[e], sizeof result[e]);
    return Flow::next;
}

// b1: the population count of A xor B, or A and B, over k.
Flow mma_bits(Warp& w, const Inst& i, u32 mask) {
    need_full_warp(mask, "mma");
    const Shape s = shape_of(i);
    const i32* o = w.ops(i);
    const i32 *ua = o + i.n_dst, *ub = ua + a_registers(s), *uc = ub + b_registers(s);
    bool a[16][kMaxK], b[kMaxK][kN];
    each_a<1>(w, ua, s, [&](u32 row, u32 k, u32 raw) { a[row][k] = raw & 1; });
    each_b<1>(w, ub, s, [&](u32 k, u32 n, u32 raw) { b[k][n] = raw & 1; });
    const bool both = i.mods & kMmaAnd;
    i32 result[4][kLanes];
    each_d(s, [&](u32 l, u32 e, u32 row, u32 column) {
        u32 sum = w.reg<u32>(uc[e])[l];
        for (u32 k = 0; k < s.k; ++k) sum += both ? a[row][k] && b[k][column] : a[row][k] != b[k][column];
        result[e][l] = static_cast<i32>(sum);
    });
    for (u32 e = 0; e < i.n_dst; ++e)
        if (o[e] >= 0) std::memcpy(w.reg<i32>(o[e]), result[e], sizeof result[e]);
    return Flow::next;
}

// f64: registers of one element; sums in the order of k, each product fused (.rn).
Flow mma_double(Warp& w, const Inst& i, u32 mask) {
    need_full_warp(mask, "mma");
    const Shape s = shape_of(i);
    const i32* o = w.ops(i);
    const u32 na = s.m * s.k / kLanes, nb = s.k * kN / kLanes;
    const i32 *ua = o + i.n_dst, *ub = ua + na, *uc = ub + nb;
    double a[16][16], b[16][kN], result[4][kLanes];
    for (u32 l = 0; l < kLanes; ++l) {
        for (u32 r = 0; r < na; ++r) {
            const fragment::Position p = fragment::a(s.m, 1, l, r, 0);
            a[p.row][p.column] = w.reg<double>(ua[r])[l];
        }
        for (u32 r = 0; r < nb; ++r) {
            const fragment::Position p = fragment::b(1, l, r, 0);
            b[p.row][p.column] = w.reg<double>(ub[r])[l];
        }
    }
    each_d(s, [&](u32 l, u32 e, u32 row, u32 column) {
        double sum = w.reg<double>(uc[e])[l];
        for (u32 k = 0; k < s.k; ++k) sum = __builtin_fma(a[row][k], b[k][column], sum);
        result[e][l] = sum;
    });
    for (u32 e = 0; e < i.n_dst; ++e)
        if (o[e] >= 0) std::memcpy(w.reg<double>(o[e]), result[e], sizeof result[e]);
    return Flow::next;
}

}  // namespace

// clang-format off
#define PTXM_OPS_warp_mma(X) \
    X(mma_sync, matrix, warp_mma)
// clang-format on

Handler bind_warp_mma(const InstRecord& r) {
    if (static_cast<Op>(r.op) != Op::mma_sync) return nullptr;
    if (r.mods >> kMmaScalesShift & 3) return mma_scaled;
    const auto a = static_cast<ElementType>(r.mods >> kMmaAShift & 0xF);
    if (a == ElementType::f64) return mma_double;
    if (a == ElementType::b1) return mma_bits;
    return element::is_integer(a) ? mma_integer : mma_float;
}

}  // namespace ptxm
