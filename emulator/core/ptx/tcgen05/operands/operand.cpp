// Operands of the tensor core: bounds and conflicts of the bytes they read, and the bytes themselves.
#include <bit>

#include "machine/machine.hpp"
#include "machine/names.hpp"
#include "memory/chunk_set.hpp"
#include "memory/memo.hpp"
#include "numbers/vector_shuffle.hpp"
#include "order/conflicts/conflicts.hpp"
#include "ptx/tcgen05/tcgen05.hpp"

namespace ptxm::tc {
namespace {

// Calls f(chunk offset, row, k or chunk index) for every 16-byte chunk.
template <class F>
void each_chunk(const SharedOperand& o, F f) {
    if (!o.mn_major) {
        const MatrixDescriptor& d = o.descriptor;
        constexpr u32 kGroup = 8, kChunks = kRowBytes / kChunk;
        u32 first[kGroup][kChunks];
        for (u32 r = 0; r < std::min(o.rows, kGroup); ++r)
            for (u32 c = 0; c < kChunks; ++c) first[r][c] = k_major_chunk(d, o.first + r, c);
        // A group of eight rows lies like the first where the stride is a multiple of every swizzle's pattern.
        const u32 groups = (o.rows - 1) / kGroup;
        const bool alike = d.swizzle != Swizzle::none && d.stride % 1024 == 0 && o.first % kGroup == 0 &&
                           u64{first[0][0]} + u64{groups + 1} * d.stride + 1024 <= kAddressMask;
        for (u32 r = 0; r < o.rows; ++r)
            for (u32 c = 0; c < kChunks; ++c)
                f(alike ? first[r % kGroup][c] + r / kGroup * d.stride : k_major_chunk(d, o.first + r, c), r, c);
        return;
    }
    // A column shift may start inside a chunk; whole chunks are read then.
    const u32 bytes = container_bytes(o.format), step = kChunk / bytes;
    for (u32 mn = o.first / step * step; mn < o.first + o.rows; mn += step)
        for (u32 k = 0; k < kRowBytes / bytes; ++k) f(mn_major_chunk(o.descriptor, mn, k, bytes), mn, k);
}

// Bytes of a chunk that hold elements; the rest is padding, which nobody has to write (PTX ISA 9.7.16.9.1).
u32 chunk_bytes(ElementType f) { return !is_padded(f) ? kChunk : f == ElementType::e2m1 ? 8 : 12; }

void unpack_row(ElementType f, u8* row) {
    u8 packed[kRowBytes];
    std::memcpy(packed, row, kRowBytes);
    for (u32 c = 0; c < kRowBytes; c += kChunk) {
        if (f == ElementType::e2m1)
            unpack_b4x16_p64(packed + c, row + c);
        else
            unpack_b6x16_p32(packed + c, row + c);
    }
}

// Where the chunks of an operand lie.
struct Footprint {
    SharedOperand operand{};
    std::vector<u32> chunks;          // shared offsets, in the order of each_chunk
    std::vector<Range> runs;          // adjacent ones together, ascending; of padded chunks what holds elements
    std::vector<BlockChunks> blocks;  // whole chunks, by block; of padded ones none
    u64 low = 0, end = 0;             // of all chunks
};

void find_runs(Footprint& f, u32 bytes = kChunk) {
    ChunkSet used;
    for (u32 at : f.chunks) used.add(at / kChunk);
    std::vector<Range> whole;
    used.runs(whole);
    f.low = whole.front().start;
    f.end = whole.back().start + whole.back().bytes;
    f.runs.clear();
    f.blocks.clear();
    if (bytes == kChunk) {
        used.blocks(f.blocks);
        f.runs = std::move(whole);
        return;
    }
    for (const Range& run : whole)
        for (u64 at = run.start; at < run.start + run.bytes; at += kChunk) f.runs.push_back({at, bytes});
}

// Kernels use few operands, over and over.
const Footprint& kept_footprint(const SharedOperand& o) {
    static thread_local Kept<Footprint> kept;
    const MatrixDescriptor& d = o.descriptor;
    const u32 hash = (d.start / kChunk + d.stride * 3 + d.leading * 5 + o.rows * 7 + o.first) * 0x9E3779B1u;
    const auto [f, known] = kept.find(hash, [&](const Footprint& x) { return x.operand == o && !x.chunks.empty(); });
    if (known) return f;
    f.operand = o;
    f.chunks.clear();
    each_chunk(o, [&chunks = f.chunks](u32 at, u32, u32) { chunks.push_back(at); });
    find_runs(f, chunk_bytes(o.format));
    return f;
}

// What lies where `footprint` says, `offset` bytes further on.
struct Placed {
    const Footprint& footprint;
    u32 offset;
};

// Every swizzle repeats after 1024 bytes: the stages of a ring lie alike, unless addresses wrap.
Placed place(const SharedOperand& o) {
    constexpr u32 kPattern = 1024;
    SharedOperand first = o;
    first.descriptor.start %= kPattern;
    const u32 offset = o.descriptor.start - first.descriptor.start;
    const Footprint& f = kept_footprint(first);
    if (f.end + offset <= kAddressMask) return {f, offset};
    return {kept_footprint(o), 0};
}

void check_placed(Warp& w, Cta& cta, const Placed& p, const Accessor& who, const char* what) {
    const u64 low = p.footprint.low + p.offset, end = p.footprint.end + p.offset;
    if (low < kSharedStart || end > cta.shared.size())
        throw Fault("shared-out-of-bounds",
                    format("%s at shared 0x%llx; %s", what,
                           (unsigned long long)(low < kSharedStart ? low : end - kChunk), shared_extent(cta).c_str()));
    touch_shared(cta, w, SharedRanges{p.footprint.runs, p.offset, low, end, p.footprint.blocks}, who, true);
}

}  // namespace

void check_chunks(Warp& w, Cta& cta, std::vector<u32> chunks, const Accessor& who, const char* what) {
    Footprint f;
    f.chunks = std::move(chunks);
    find_runs(f);
    check_placed(w, cta, {f, 0}, who, what);
}

void check_shared(Warp& w, Cta& cta, const SharedOperand& o, const Accessor& who, const char* what) {
    check_placed(w, cta, place(o), who, what);
}

namespace {

typedef u8 Bytes __attribute__((vector_size(kChunk)));
typedef u16 Halves __attribute__((vector_size(kChunk)));
typedef u32 Words __attribute__((vector_size(kChunk)));
typedef u64 Longs __attribute__((vector_size(kChunk)));

// Halves k of eight columns -> row r of out: half k of each, r rows down.
[[gnu::always_inline]] inline void transpose(Halves (&x)[8], Halves (&out)[8]) {
    Words pairs[8];
    for (u32 k = 0; k < 4; ++k) {
        const Halves low = shuffled<0, 8, 1, 9, 2, 10, 3, 11>(x[2 * k], x[2 * k + 1]);
        const Halves high = shuffled<4, 12, 5, 13, 6, 14, 7, 15>(x[2 * k], x[2 * k + 1]);
        pairs[k] = std::bit_cast<Words>(low);  // of rows 0 to 3
        pairs[4 + k] = std::bit_cast<Words>(high);
    }
    for (u32 h = 0; h < 2; ++h) {
        const Words *first = pairs + 4 * h, *second = first + 2;
        const Words a = shuffled<0, 4, 1, 5>(first[0], first[1]), b = shuffled<0, 4, 1, 5>(second[0], second[1]),
                    c = shuffled<2, 6, 3, 7>(first[0], first[1]), d = shuffled<2, 6, 3, 7>(second[0], second[1]);
        const auto long_of = [](const Words& w) { return std::bit_cast<Longs>(w); };
        out[4 * h] = std::bit_cast<Halves>(shuffled<0, 2>(long_of(a), long_of(b)));
        out[4 * h + 1] = std::bit_cast<Halves>(shuffled<1, 3>(long_of(a), long_of(b)));
        out[4 * h + 2] = std::bit_cast<Halves>(shuffled<0, 2>(long_of(c), long_of(d)));
        out[4 * h + 3] = std::bit_cast<Halves>(shuffled<1, 3>(long_of(c), long_of(d)));
    }
}

// Rows of an operand along MN whose chunks hold whole columns of 8 or, of bytes, 16 rows.
template <bool kOfBytes>
void gather_columns(const Chunks& chunks, u8* rows) {
    constexpr u32 kRows = 8, kHalf = kRowBytes / 2;  // bytes of K of a row at a time
    const auto load = [](const u8* from) {
        Bytes v;
        std::memcpy(&v, from, sizeof v);
        return v;
    };
    const u32* at = chunks.offsets.data();
    for (u32 c = 0; c < chunks.offsets.size();
         c += kOfBytes ? 2 * kHalf : kHalf, rows += (kOfBytes ? 2 : 1) * kRows * kRowBytes) {
        for (u32 k = 0; k < kRowBytes; k += kHalf) {
            Halves x[2][8], out[8];
            for (u32 e = 0; e < 8; ++e) {
                if constexpr (kOfBytes) {
                    const Bytes even = load(chunks.memory + *at++), odd = load(chunks.memory + *at++);
                    x[0][e] = std::bit_cast<Halves>(
                        shuffled<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(even, odd));
                    x[1][e] = std::bit_cast<Halves>(
                        shuffled<8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31>(even, odd));
                } else {
                    x[0][e] = std::bit_cast<Halves>(load(chunks.memory + *at++));
                }
            }
            for (u32 part = 0; part < (kOfBytes ? 2 : 1); ++part) {
                transpose(x[part], out);
                for (u32 r = 0; r < kRows; ++r) std::memcpy(rows + (part * kRows + r) * kRowBytes + k, &out[r], kHalf);
            }
        }
    }
}

}  // namespace

void gather(const Cta& cta, const SharedOperand& o, u8* rows) {
    if (!o.mn_major) {
        const Placed p = place(o);
        const u8* shared = cta.shared.data() + p.offset;
        u8* to = rows;
        for (u32 at : p.footprint.chunks) {
            std::memcpy(to, shared + at, kChunk);
            to += kChunk;
        }
        if (is_padded(o.format))
            for (u32 r = 0; r < o.rows; ++r) unpack_row(o.format, rows + r * kRowBytes);
        return;
    }
    const u8* shared = cta.shared.data();
    const u32 bytes = container_bytes(o.format);
    if (has_columns(o) && bytes < sizeof(u32)) {
        const Chunks chunks = chunks_of(cta, o);
        return bytes == 1 ? gather_columns<true>(chunks, rows) : gather_columns<false>(chunks, rows);
    }
    each_chunk(o, [&](u32 at, u32 mn, u32 k) {
        for (u32 e = 0; e < kChunk / bytes; ++e) {
            const u32 row = mn + e - o.first;  // wraps below the first row, which the bound then excludes
            if (row < o.rows) std::memcpy(rows + row * kRowBytes + k * bytes, shared + at + e * bytes, bytes);
        }
    });
}

bool has_columns(const SharedOperand& o) {
    const u32 step = kChunk / container_bytes(o.format);
    return o.mn_major && o.first % step == 0 && o.rows % step == 0;
}

Chunks chunks_of(const Cta& cta, const SharedOperand& o) {
    const Placed p = place(o);
    return {cta.shared.data() + p.offset, p.footprint.chunks};
}

u32 issuing_lane(u32 mask, const char* what) {
    if (std::popcount(mask) != 1)
        throw Fault("mma-issued-by-many",
                    format("%s executed by %d lanes; each would issue the whole operation", what, std::popcount(mask)));
    return static_cast<u32>(std::countr_zero(mask));
}

std::array<Cta*, 2> ctas_of(Warp& w, bool pair, const char* what) {
    Cta& cta = *w.cta;
    const u8 group = pair ? 2 : 1;
    if (cta.tmem.cta_group && cta.tmem.cta_group != group)
        machine_of(w).report_strict(
            &w, "mixed-cta-group",
            format("%s with cta_group::%u in a kernel that has used cta_group::%u", what, group, cta.tmem.cta_group),
            w.pc());
    cta.tmem.cta_group = group;
    if (!pair) return {&cta, nullptr};
    auto& ctas = cta.cluster->ctas;
    if ((cta.rank ^ 1) >= ctas.size())
        throw Fault("cta-pair", format("%s with cta_group::2 by CTA rank %u of a cluster of %zu: it has no peer", what,
                                       cta.rank, ctas.size()));
    return {ctas[cta.rank & ~1u].get(), ctas[cta.rank | 1].get()};
}

}  // namespace ptxm::tc
