// The shared-memory operands of wgmma: descriptors and layouts (PTX ISA 9.7.15.5.1.2).
#pragma once

#include "memory/tensor_map/tensor_map.hpp"
#include "ptx/mma/matrix.hpp"

namespace ptxm {

constexpr u32 kWgmmaKBytes = 32;  // of one operation, whatever the type; twice that of B where A is sparse
constexpr u32 kWgmmaChunk = 16;   // the bytes that stay together in every canonical layout

struct WgmmaDescriptor {
    u32 start = 0, leading = 0, stride = 0;
    Swizzle swizzle = Swizzle::none;

    // Shared offset of the 16-byte chunk that holds the element (mn, k), for elements of `bytes`.
    u32 chunk(bool mn_major, u32 bytes, u32 mn, u32 k) const;
    bool operator==(const WgmmaDescriptor&) const = default;
};

// Throws Fault for reserved bits and for what is not modelled. `which` names the operand.
WgmmaDescriptor decode_wgmma_descriptor(u64 bits, const char* which);

// Rows [first, first + rows) of an operand of elements of `bytes` bytes, and of its K `k_bytes` bytes.
struct WgmmaTile {
    bool mn_major;
    u32 bytes, first, rows, k_bytes;
    bool operator==(const WgmmaTile&) const = default;
};

constexpr u32 kWgmmaWarps = 4, kWgmmaRows = 16;  // of a warpgroup; of a warp's part of A and D

// What a wgmma instruction multiplies.
struct WgmmaShape {
    ElementType d, a, b;
    u32 n, k;
    bool a_registers, a_mn_major, b_mn_major;
    float a_scale, b_scale;
    bool saturate, sparse;
    bool bits;     // b1: eight elements of A and B in each byte, of which it counts those that both have
    u32 selector;  // which threads of four hold a sparse A's metadata
    u32 stored() const { return sparse ? k / 2 : k; }  // elements of a row of A
    u32 b_k_bytes() const { return sparse ? 2 * kWgmmaKBytes : kWgmmaKBytes; }
    WgmmaTile a_tile(u32 warp) const { return {a_mn_major, a_bytes(), warp * kWgmmaRows, kWgmmaRows, kWgmmaKBytes}; }
    WgmmaTile b_tile() const { return {b_mn_major, b_bytes(), 0, n, b_k_bytes()}; }
    u32 a_bytes() const { return container_bytes(a); }
    u32 b_bytes() const { return container_bytes(b); }
    u32 d_registers() const { return d == ElementType::f16 ? n / 4 : n / 2; }
};

WgmmaShape wgmma_shape(const Inst& i);

// A sparse A's metadata, of each lane of each warp, as it was at the instruction.
using WgmmaMetadata = std::array<std::array<u32, kLanes>, kWgmmaWarps>;

// One operation in the queue of a warpgroup.
struct WgmmaOperation {
    WgmmaShape shape;
    const i32* units[kWgmmaWarps];  // operands of the instruction, the same for each warp
    Warp* warps[kWgmmaWarps];
    u64 a = 0, b = 0;
    bool accumulate = false;
    std::shared_ptr<const WgmmaMetadata> metadata;  // of a sparse A
};

// Operands: D registers, then A (registers or descriptor), B descriptor, scale-d, a sparse A's metadata.
struct WgmmaSources {
    const i32 *d, *a;
    i32 b, scale, metadata;
    u32 a_count;
};

WgmmaSources wgmma_sources(const i32* operands, const WgmmaShape& s);

// Multiplies, and writes the accumulator registers of the four warps.
void execute_wgmma(const WgmmaOperation& op);

// Checks bounds and conflicts of a tile, as the warp that reads it.
void check_wgmma_operand(Warp& w, const WgmmaDescriptor& d, const WgmmaTile& tile, const Accessor& who,
                         const char* which);

// Where the chunks of a tile lie: rows ascending, then k.
struct WgmmaChunks {
    std::span<const u32> offsets;
    u32 offset;  // to be added to each
};
WgmmaChunks wgmma_chunks(const WgmmaDescriptor& d, const WgmmaTile& tile);

// Calls f(row, k, raw bits) for every element of a tile, whose elements are of `bytes` bytes.
template <u32 bytes, class F>
void each_wgmma_element(const Cta& cta, const WgmmaDescriptor& d, const WgmmaTile& tile, F f) {
    constexpr u32 per = kWgmmaChunk / bytes;
    using Bits = std::conditional_t<bytes == 1, u8, std::conditional_t<bytes == 2, u16, u32>>;
    const bool mn_major = tile.mn_major;
    const u32 k_count = tile.k_bytes / bytes, first = tile.first, rows = tile.rows;
    const u32 mn_step = mn_major ? per : 1, k_step = mn_major ? 1 : per;
    const WgmmaChunks chunks = wgmma_chunks(d, tile);
    const u8* memory = cta.shared.data() + chunks.offset;
    const u32* chunk = chunks.offsets.data();
    // Two loops: where a chunk lies is known where they are compiled.
    const auto each = [&](auto along_mn) {
        for (u32 mn = first; mn < first + rows; mn += mn_step) {
            for (u32 k = 0; k < k_count; k += k_step, ++chunk) {
                Bits raw[per];
                std::memcpy(raw, memory + *chunk, kWgmmaChunk);
#pragma GCC unroll 16
                for (u32 e = 0; e < per; ++e) f(along_mn ? mn + e : mn, along_mn ? k : k + e, raw[e]);
            }
        }
    };
    if (mn_major)
        each(std::true_type{});
    else
        each(std::false_type{});
}

}  // namespace ptxm
