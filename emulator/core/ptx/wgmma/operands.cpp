#include "ptx/wgmma/operands.hpp"

#include <algorithm>
#include <array>

#include "machine/cluster/cluster.hpp"
#include "machine/names.hpp"
#include "memory/chunk_set.hpp"
#include "memory/memo.hpp"
#include "order/conflicts/conflicts.hpp"

namespace ptxm {
namespace {

u32 span_of(Swizzle s) {
    switch (s) {
        case Swizzle::b32: return 32;
        case Swizzle::b64: return 64;
        case Swizzle::b128: return 128;
        default: return kWgmmaChunk;
    }
}

}  // namespace

u32 WgmmaDescriptor::chunk(bool mn_major, u32 bytes, u32 mn, u32 k) const {
    const u32 span = span_of(swizzle), per = kWgmmaChunk / bytes;
    u32 a = start;
    if (!mn_major) {
        // ((8, m), (T, 2)) : ((row, SBO), (1, LBO or T)); the leading offset is read without a swizzle only.
        a += mn / 8 * stride + mn % 8 * span + k / per * (swizzle == Swizzle::none ? leading : kWgmmaChunk);
    } else if (swizzle == Swizzle::none) {
        a += mn / per * stride + k % 8 * kWgmmaChunk + k / 8 * leading;
    } else {
        const u32 at = mn * bytes;
        a += at / span * leading + at % span / kWgmmaChunk * kWgmmaChunk + k % 8 * span + k / 8 * stride;
    }
    return swizzled(swizzle, a);
}

// Bits 0-13 start, 16-29 leading, 32-45 stride (all >> 4), 49-51 base offset, 62-63 swizzle.
WgmmaDescriptor decode_wgmma_descriptor(u64 bits, const char* which) {
    const auto field = [&](u32 low, u32 width) { return static_cast<u32>(bits >> low & ((1ull << width) - 1)); };
    const auto fail = [&](const char* why) {
        throw Fault("matrix-descriptor",
                    format("wgmma descriptor of %s (0x%016llx): %s", which, (unsigned long long)bits, why));
    };
    if (field(14, 2) || field(30, 2) || field(46, 3) || field(52, 10)) fail("reserved bits are set");
    if (field(49, 3)) fail("a base offset other than 0 is not modelled");
    WgmmaDescriptor d;
    d.start = field(0, 14) << 4;
    d.leading = field(16, 14) << 4;
    d.stride = field(32, 14) << 4;
    constexpr Swizzle kSwizzles[] = {Swizzle::none, Swizzle::b128, Swizzle::b64, Swizzle::b32};
    d.swizzle = kSwizzles[field(62, 2)];
    return d;
}

WgmmaShape wgmma_shape(const Inst& i) {
    const auto type = [&](u32 shift) { return static_cast<ElementType>(i.mods >> shift & 0xF); };
    WgmmaShape s;
    s.d = type(kMmaDShift);
    s.a = type(kMmaAShift);
    s.b = type(kMmaBShift);
    s.n = static_cast<u32>(i.immediate);
    s.sparse = i.mods & kMmaSparse;
    s.selector = i.mods >> kMmaSelectorShift & 3;
    s.k = s.b_k_bytes() / s.b_bytes();
    s.a_registers = i.mods & kWgmmaARegisters;
    s.a_mn_major = i.mods & kWgmmaTransA;
    s.b_mn_major = i.mods & kWgmmaTransB;
    s.a_scale = i.mods & kWgmmaNegateA ? -1.0f : 1.0f;
    s.b_scale = i.mods & kWgmmaNegateB ? -1.0f : 1.0f;
    s.saturate = i.mods & kMmaSat;
    s.bits = i.mods & kMmaAnd;
    return s;
}

WgmmaSources wgmma_sources(const i32* o, const WgmmaShape& s) {
    const u32 nd = s.d_registers(), na = s.a_registers ? 4 : 1;
    return {o, o + nd, o[nd + na], o[nd + na + 1], s.sparse ? o[nd + na + 2] : -1, na};
}

namespace {

// Of one operand: kernels use few, over and over.
struct Footprint {
    WgmmaDescriptor descriptor;
    WgmmaTile tile{};
    std::vector<u32> chunks;
    std::vector<Range> runs;  // adjacent ones together, ascending
    std::vector<BlockChunks> blocks;
    u64 low = 0, end = 0;
};

const Footprint& kept_footprint(const WgmmaDescriptor& d, const WgmmaTile& tile) {
    static thread_local Kept<Footprint> kept;
    const u32 hash =
        (d.start / kWgmmaChunk + d.stride * 3 + d.leading * 5 + tile.rows * 7 + tile.first * 11) * 0x9E3779B1u;
    const auto [f, known] =
        kept.find(hash, [&](const Footprint& x) { return x.descriptor == d && x.tile == tile && !x.chunks.empty(); });
    if (known) return f;
    f.descriptor = d;
    f.tile = tile;
    f.chunks.clear();
    const u32 per = kWgmmaChunk / tile.bytes, k_count = tile.k_bytes / tile.bytes;
    const u32 mn_step = tile.mn_major ? per : 1, k_step = tile.mn_major ? 1 : per;
    ChunkSet used;
    for (u32 mn = tile.first; mn < tile.first + tile.rows; mn += mn_step) {
        for (u32 k = 0; k < k_count; k += k_step) {
            const u32 at = d.chunk(tile.mn_major, tile.bytes, mn, k);
            f.chunks.push_back(at);
            if (at / kWgmmaChunk < ChunkSet::kChunks) used.add(at / kWgmmaChunk);  // beyond lies no CTA's memory
        }
    }
    used.runs(f.runs);
    used.blocks(f.blocks);
    const auto [low, high] = std::ranges::minmax(f.chunks);
    f.low = low;
    f.end = u64{high} + kWgmmaChunk;
    return f;
}

struct Placed {
    const Footprint& footprint;
    u32 offset;
};

// Every swizzle repeats after 1024 bytes: the stages of a ring lie alike.
Placed place(const WgmmaDescriptor& d, const WgmmaTile& tile) {
    constexpr u32 kPattern = 1024;
    WgmmaDescriptor lowest = d;
    lowest.start %= kPattern;
    return {kept_footprint(lowest, tile), d.start - lowest.start};
}

}  // namespace

WgmmaChunks wgmma_chunks(const WgmmaDescriptor& d, const WgmmaTile& tile) {
    const Placed p = place(d, tile);
    return {p.footprint.chunks, p.offset};
}

void check_wgmma_operand(Warp& w, const WgmmaDescriptor& d, const WgmmaTile& tile, const Accessor& who,
                         const char* which) {
    Cta& cta = *w.cta;
    if (!tile.mn_major && d.swizzle == Swizzle::b32 && tile.k_bytes > span_of(d.swizzle))
        throw Fault("matrix-descriptor",
                    format("wgmma descriptor of %s: %u bytes of K with a swizzle of 32 bytes are not modelled", which,
                           tile.k_bytes));
    const Placed p = place(d, tile);
    const u64 low = p.footprint.low + p.offset, end = p.footprint.end + p.offset;
    if (low < kSharedStart || end > cta.shared.size()) {
        const auto outside = std::ranges::find_if(p.footprint.chunks, [&](u32 chunk) {
            return chunk + p.offset < kSharedStart || u64{chunk} + p.offset + kWgmmaChunk > cta.shared.size();
        });
        throw Fault("shared-out-of-bounds", format("wgmma reads operand %s at shared 0x%x; %s", which,
                                                   *outside + p.offset, shared_extent(cta).c_str()));
    }
    touch_shared(cta, w, SharedRanges{p.footprint.runs, p.offset, low, end, p.footprint.blocks}, who, true);
}

}  // namespace ptxm
