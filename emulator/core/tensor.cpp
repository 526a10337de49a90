// tcgen05.mma and tcgen05.commit: descriptors, operand gathering, the product, completion.
//
// An MMA takes effect when it completes, in issue order within its CTA's tensor core. Conflicts are checked when it is
// issued, against what its issuer has synchronised with.
#include <bitset>

#include "handlers.hpp"
#include "lanes.hpp"
#include "tensormap.hpp"

namespace ptxm {
namespace {

constexpr u32 kKBytes = 32;  // of one MMA: K = 16 for 16-bit elements
constexpr u32 kK = 16;
constexpr u32 kChunk = 16;  // the bytes that stay together in every canonical layout

// Shared-memory matrix descriptor (PTX ISA 9.7.16.4.1).
struct MatrixDescriptor {
    u32 start, leading, stride;
    Swizzle swizzle;
};

MatrixDescriptor decode_descriptor(u64 bits, const char* which) {
    const auto field = [&](u32 low, u32 width) { return static_cast<u32>(bits >> low & ((1ull << width) - 1)); };
    if (field(46, 3) != 1)
        throw Fault("matrix-descriptor", format("descriptor of %s (0x%016llx): bits 46-48 are %u, sm_100 needs 1",
                                                which, (unsigned long long)bits, field(46, 3)));
    if (field(14, 2) || field(30, 2) || field(53, 8))
        throw Fault("matrix-descriptor",
                    format("descriptor of %s (0x%016llx): reserved bits are set", which, (unsigned long long)bits));
    if (field(49, 3))
        throw Fault("matrix-descriptor",
                    format("descriptor of %s: base offset %u is not modelled", which, field(49, 3)));
    if (field(52, 1))
        throw Fault("matrix-descriptor",
                    format("descriptor of %s: absolute leading-dimension addressing is not modelled", which));
    MatrixDescriptor d;
    d.start = field(0, 14) << 4;
    d.leading = field(16, 14) << 4;
    d.stride = field(32, 14) << 4;
    switch (field(61, 3)) {
        case 0: d.swizzle = Swizzle::none; break;
        case 2: d.swizzle = Swizzle::b128; break;
        case 4: d.swizzle = Swizzle::b64; break;
        case 6: d.swizzle = Swizzle::b32; break;
        default:
            throw Fault("matrix-descriptor",
                        format("descriptor of %s: swizzle code %u is not modelled", which, field(61, 3)));
    }
    return d;
}

u32 swizzle_bytes(Swizzle s) {
    switch (s) {
        case Swizzle::b32: return 32;
        case Swizzle::b64: return 64;
        case Swizzle::b128: return 128;
        default: return kChunk;
    }
}

// Shared offset of the 16-byte chunk that holds element (mn, k). K-major: 8 elements along k; MN-major: 8 along mn.
u32 chunk_offset(const MatrixDescriptor& d, bool mn_major, u32 mn, u32 k) {
    const u32 span = swizzle_bytes(d.swizzle);
    u32 a = d.start;
    if (!mn_major) {
        if (d.swizzle == Swizzle::none)
            a += mn / 8 * d.stride + mn % 8 * kChunk + k / 8 * d.leading;
        else
            a += mn / 8 * d.stride + mn % 8 * span + k / 8 * kChunk;
    } else {
        if (d.swizzle == Swizzle::none)
            a += mn / 8 * d.stride + k % 8 * kChunk + k / 8 * d.leading;
        else
            a += mn * 2 / span * d.leading + mn * 2 % span / kChunk * kChunk + k % 8 * span + k / 8 * d.stride;
    }
    return swizzled(d.swizzle, a);
}

// Instruction descriptor of kind::f16 (PTX ISA 9.7.16.4.2).
struct Instruction {
    u32 m, n;
    bool a_bf16, b_bf16, a_mn_major, b_mn_major, negate_a, negate_b;
};

Instruction decode_instruction(u32 bits) {
    const auto field = [&](u32 low, u32 width) { return bits >> low & ((1u << width) - 1); };
    if (field(0, 4))
        throw Fault("instruction-descriptor", format("0x%08x: sparsity and saturation are not modelled", bits));
    if (field(4, 2) != 1)
        throw Fault("instruction-descriptor", format("0x%08x: D type %u; only f32 is modelled", bits, field(4, 2)));
    if (field(7, 3) > 1 || field(10, 3) > 1)
        throw Fault("instruction-descriptor",
                    format("0x%08x: kind::f16 has A and B of type f16 (0) or bf16 (1)", bits));
    if (field(6, 1) || field(23, 1) || field(29, 1))
        throw Fault("instruction-descriptor", format("0x%08x: reserved bits are set", bits));
    if (field(30, 2)) throw Fault("instruction-descriptor", format("0x%08x: the maximum shift belongs to .ws", bits));
    Instruction i;
    i.n = field(17, 6) << 3;
    i.m = field(24, 5) << 4;
    i.a_bf16 = field(7, 3) == 1;
    i.b_bf16 = field(10, 3) == 1;
    i.negate_a = field(13, 1);
    i.negate_b = field(14, 1);
    i.a_mn_major = field(15, 1);
    i.b_mn_major = field(16, 1);
    if (i.m != 128)
        throw Fault("instruction-descriptor",
                    format("0x%08x: M = %u; only M = 128 with cta_group::1 is modelled", bits, i.m));
    if (i.n == 0 || i.n > 256 || i.n % 16)
        throw Fault("instruction-descriptor",
                    format("0x%08x: N = %u; M = 128 needs a multiple of 16 in 16..256", bits, i.n));
    return i;
}

struct Mma {
    Instruction shape;
    MatrixDescriptor a, b;
    bool a_tmem = false, accumulate = false;
    u32 d_column = 0, a_column = 0;
};

float half_to_float(u16 h) {
    const u32 sign = (h & 0x8000u) << 16, exponent = h >> 10 & 0x1F, fraction = h & 0x3FFu;
    if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
    if (exponent) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -magnitude : magnitude;
}

float element(u16 bits, bool bf16, bool negate) {
    const float x = bf16 ? bf16_to_float(bits) : half_to_float(bits);
    return negate ? -x : x;
}

// rows x 16 elements, row-major, from shared memory.
void gather(const Cta& cta, const MatrixDescriptor& d, bool mn_major, u32 rows, bool bf16, bool negate, float* out) {
    u16 chunk[8];
    const u32 mn_step = mn_major ? 8 : 1, k_step = mn_major ? 1 : 8;
    for (u32 mn = 0; mn < rows; mn += mn_step) {
        for (u32 k = 0; k < kK; k += k_step) {
            std::memcpy(chunk, cta.shared.data() + chunk_offset(d, mn_major, mn, k), kChunk);
            for (u32 e = 0; e < 8; ++e) {
                const u32 row = mn_major ? mn + e : mn, column = mn_major ? k : k + e;
                out[row * kK + column] = element(chunk[e], bf16, negate);
            }
        }
    }
}

void gather_tmem(Tmem& t, u32 column, bool bf16, bool negate, float* out) {
    for (u32 lane = 0; lane < 128; ++lane) {
        const u32* words = t.row(lane) + column;
        for (u32 k = 0; k < kK; ++k)
            out[lane * kK + k] = element(static_cast<u16>(words[k / 2] >> (16 * (k % 2))), bf16, negate);
    }
}

// D = A B^T (+ D) in f32, products and sums fused; silicon's internal alignment of the sixteen products is not
// modelled.
void multiply(const float* a, const float* bt, u32 n, bool accumulate, Tmem& t, u32 d_column) {
    constexpr u32 kBlock = 16;
    for (u32 m = 0; m < 128; ++m) {
        float* d = reinterpret_cast<float*>(t.row(m) + d_column);
        for (u32 block = 0; block < n; block += kBlock) {
            float sum[kBlock];
            for (u32 j = 0; j < kBlock; ++j) sum[j] = accumulate ? d[block + j] : 0.0f;
            for (u32 k = 0; k < kK; ++k) {
                const float x = a[m * kK + k];
                const float* row = bt + k * 256 + block;
                for (u32 j = 0; j < kBlock; ++j) sum[j] = __builtin_fmaf(x, row[j], sum[j]);
            }
            for (u32 j = 0; j < kBlock; ++j) d[block + j] = sum[j];
        }
    }
}

void execute(Cta& cta, const Mma& mma) {
    static thread_local float a[128 * kK], b[256 * kK], bt[kK * 256];
    const Instruction& s = mma.shape;
    if (mma.a_tmem)
        gather_tmem(cta.tmem, mma.a_column, s.a_bf16, s.negate_a, a);
    else
        gather(cta, mma.a, s.a_mn_major, 128, s.a_bf16, s.negate_a, a);
    gather(cta, mma.b, s.b_mn_major, s.n, s.b_bf16, s.negate_b, b);
    for (u32 n = 0; n < s.n; ++n)
        for (u32 k = 0; k < kK; ++k) bt[k * 256 + n] = b[n * kK + k];
    multiply(a, bt, s.n, mma.accumulate, cta.tmem, mma.d_column);
}

// Every chunk of an operand must lie in the CTA's shared memory; runs of adjacent ones are checked for conflicts
// together.
void check_operand(Warp& w, const MatrixDescriptor& d, bool mn_major, u32 rows, const Accessor& who,
                   const char* which) {
    static thread_local std::bitset<(1u << 18) / kChunk> used;
    used.reset();
    Cta& cta = *w.cta;
    const u32 mn_step = mn_major ? 8 : 1, k_step = mn_major ? 1 : 8;
    u32 low = ~0u, high = 0;
    for (u32 mn = 0; mn < rows; mn += mn_step) {
        for (u32 k = 0; k < kK; k += k_step) {
            const u32 at = chunk_offset(d, mn_major, mn, k);
            if (at < kSharedStart || at + kChunk > cta.shared.size())
                throw Fault("shared-out-of-bounds",
                            format("tcgen05.mma reads operand %s at shared 0x%x; the CTA has [0x%x, 0x%zx)", which, at,
                                   kSharedStart, cta.shared.size()));
            used.set(at / kChunk);
            low = std::min(low, at / kChunk);
            high = std::max(high, at / kChunk);
        }
    }
    for (u32 c = low; c <= high; ++c) {
        if (!used[c]) continue;
        u32 end = c;
        while (end <= high && used[end]) ++end;
        touch_shared(cta, w, c * kChunk, (end - c) * kChunk, who, true);
        c = end;
    }
}

void check_columns(Warp& w, u32 column, u32 columns, const char* what) {
    if (!w.cta->tmem.allocated(column, columns))
        throw Fault("tmem-unallocated", format("tcgen05.mma: %s in columns %u-%u, which are not all allocated", what,
                                               column, column + columns - 1));
}

u32 tmem_column(u32 address, const char* what) {
    if (address >> 16)
        throw Fault("tmem-address",
                    format("tcgen05.mma: %s at lane %u; M = 128 starts at lane 0", what, address >> 16));
    return address & 0xFFFF;
}

// Operands: D address, A (descriptor or address), B descriptor, instruction descriptor, enable-input-d.
Flow mma(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    Machine& m = machine_of(w);
    if (std::popcount(mask) != 1)
        throw Fault(
            "mma-issued-by-many",
            format("tcgen05.mma executed by %d lanes; each would issue the whole operation", std::popcount(mask)));
    const u32 lane = static_cast<u32>(std::countr_zero(mask));
    Mma op;
    op.shape = decode_instruction(w.reg<u32>(o[3])[lane]);
    op.a_tmem = i.mods & kTcATmem;
    op.accumulate = w.pred(o[4]) >> lane & 1;
    op.d_column = tmem_column(w.reg<u32>(o[0])[lane], "D");
    check_columns(w, op.d_column, op.shape.n, "D");
    const Accessor reads{w.clocks.tensor, ++w.clocks.mma_issued, static_cast<u32>(w.pc()), false};
    Accessor writes = reads;
    writes.write = true;
    if (op.a_tmem) {
        if (op.shape.a_mn_major) throw Fault("instruction-descriptor", "A from tensor memory is K-major");
        op.a_column = tmem_column(w.reg<u32>(o[1])[lane], "A");
        check_columns(w, op.a_column, kK / 2, "A");
        touch_tmem(*w.cta, w, 0, 128, op.a_column, kK / 2, reads, "tcgen05.mma (operand A)");
    } else {
        op.a = decode_descriptor(w.reg<u64>(o[1])[lane], "A");
        check_operand(w, op.a, op.shape.a_mn_major, 128, reads, "A");
    }
    op.b = decode_descriptor(w.reg<u64>(o[2])[lane], "B");
    check_operand(w, op.b, op.shape.b_mn_major, op.shape.n, reads, "B");
    if (op.accumulate) touch_tmem(*w.cta, w, 0, 128, op.d_column, op.shape.n, reads, "tcgen05.mma (accumulator)");
    touch_tmem(*w.cta, w, 0, 128, op.d_column, op.shape.n, writes, "tcgen05.mma (D)");
    m.stats.mma += 1;
    Cta& cta = *w.cta;
    start_async(w, true, op.shape.n / 2, [&cta, op] { execute(cta, op); });
    return Flow::next;
}

// Arrives on the mbarrier when every earlier tcgen05 operation of this thread is complete; implies
// fence::before_thread_sync (PTX ISA 9.7.16.6.4).
Flow commit(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        u64 address = i.width_src == 64 ? w.reg<u64>(o[0])[l] : w.reg<u32>(o[0])[l];
        if ((address & kWindowMask) == kSharedWindow) address &= ~kWindowMask;
        const SharedRef at = resolve_shared(w, static_cast<u32>(address), 8, "tcgen05.commit");
        check_mbarrier_visible(w, mbarrier_at(w, static_cast<u32>(address), "tcgen05.commit"), true);
        Message message = w.clocks.release();
        message.tc = w.clocks.tc;
        for (VectorClock* clock : {&message.generic, &message.async, &message.tc})
            clock->raise(w.clocks.tensor, w.clocks.mma_issued);
        message.tc_unfenced = message.tc;
        start_async(w, true, 0, [at, message] {
            auto it = at.cta->mbarriers.find(at.offset);
            if (it == at.cta->mbarriers.end())
                throw Fault("mbarrier-uninitialised",
                            format("tcgen05.commit arrives on shared 0x%x, where the mbarrier has been invalidated",
                                   at.offset));
            mbarrier_arrive(nullptr, *at.cta, at.offset, it->second, 1, &message);
        });
    }
    return Flow::next;
}

}  // namespace

Handler bind_tensor(const InstRecord& r) {
    switch (static_cast<Op>(r.op)) {
        case Op::tc_mma: return mma;
        case Op::tc_commit: return commit;
        case Op::tc_fence_before:
            return [](Warp& w, const Inst&, u32) {
                w.clocks.fence_before();
                return Flow::next;
            };
        case Op::tc_fence_after:
            return [](Warp& w, const Inst&, u32) {
                w.clocks.fence_after();
                return Flow::next;
            };
        default: return nullptr;
    }
}

}  // namespace ptxm
