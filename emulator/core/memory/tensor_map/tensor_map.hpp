// The 128 bytes of a tensor map, as emulator/tensormap.py encodes them.
#pragma once

#include <algorithm>
#include <vector>

#include "memory/memory.hpp"
#include "memory/overlap.hpp"
#include "order/history/access_history.hpp"

namespace ptxm {

struct Cta;
struct Warp;

// As emulator/tensormap_rules.py numbers them, which is as the driver does.
enum Dtype : u8 {
    du8,
    du16,
    du32,
    ds32,
    du64,
    ds64,
    df16,
    df32,
    df64,
    dbf16,
    df32_ftz,
    dtf32,
    dtf32_ftz,
    d16u4_align8,
    d16u4_align16,
    d16u6_align16
};

enum class Swizzle : u8 { none, b32, b64, b128, b128_atom32, b128_atom32_flip8, b128_atom64 };

struct TensorMap {
    u8 dtype = 0, rank = 0, interleave = 0, oob = 0, element_bits = 0;
    Swizzle swizzle = Swizzle::none;
    u64 address = 0;
    u64 global_dim[5] = {1, 1, 1, 1, 1};
    u64 stride[5] = {};  // bytes; [0] is the element size
    u32 box[5] = {1, 1, 1, 1, 1};
    u32 element_stride[5] = {1, 1, 1, 1, 1};
    u32 padding = 0;  // bytes behind each element in shared memory
    // Of a map for im2col copies, whose box is its channels by its pixels: the first and the last pixel of the bounding
    // box, W first.
    bool im2col = false;
    i64 first_pixel[3] = {}, last_pixel[3] = {};

    u32 element_bytes() const { return element_bits / 8; }
    u32 shared_element() const { return element_bytes() + padding; }
    // Elements of a box along a dimension. The driver ignores the stride of the innermost one (CUDA driver API,
    // cuTensorMapEncodeTiled: TMA does not support it without interleave).
    u32 step(u32 d) const { return d ? element_stride[d] : 1; }
    u32 count(u32 d) const { return im2col ? box[d] : (box[d] + step(d) - 1) / step(d); }
    u32 box_bytes() const {
        u32 n = shared_element();
        for (u32 d = 0; d < rank; ++d) n *= count(d);
        return n;
    }
};

bool holds_tensor_map(const u8* bytes);
bool holds_im2col_map(const u8* bytes);
void begin_tensor_map(u8* bytes);

// Throws Fault when the bytes are not a tensor map.
TensorMap decode_tensor_map(const u8* bytes);

// Where byte `address` of an unswizzled box lands: address bits are exchanged within the swizzle span (PTX ISA 5.5.7).
inline u32 swizzled(Swizzle mode, u32 address) {
    switch (mode) {
        case Swizzle::b32: return address ^ (address >> 7 & 1) << 4;
        case Swizzle::b64: return address ^ (address >> 7 & 3) << 4;
        case Swizzle::b128: return address ^ (address >> 7 & 7) << 4;
        // Larger atoms move as a whole: as many rows take part as atoms fit in 128 bytes.
        case Swizzle::b128_atom32: return address ^ (address >> 7 & 3) << 5;
        // In alternate rows the 8-byte halves of each 16 bytes are exchanged as well.
        case Swizzle::b128_atom32_flip8: return address ^ (address >> 7 & 3) << 5 ^ (address >> 7 & 1) << 3;
        case Swizzle::b128_atom64: return address ^ (address >> 7 & 1) << 6;
        default: return address;
    }
}

inline u32 swizzle_span(Swizzle mode) {
    switch (mode) {
        case Swizzle::none: return 0;
        case Swizzle::b32: return 32;
        case Swizzle::b64: return 64;
        default: return 128;
    }
}

// After so many bytes the exchange of address bits is the same again.
inline u32 swizzle_pattern(Swizzle mode) {
    switch (mode) {
        case Swizzle::none: return 1;
        case Swizzle::b32:
        case Swizzle::b128_atom64: return 256;
        case Swizzle::b128: return 1024;
        default: return 512;
    }
}

// The elements that a tensor copy moves: a box at a position, or four rows of a two-dimensional tensor.
struct Box {
    TensorMap map;
    i32 start[5] = {};
    bool rows4 = false;  // tile::gather4, tile::scatter4: start[0] is the column, start[1..4] the rows
    u32 offset[3] = {};  // im2col: of each pixel that is copied from the one in the bounding box, W first

    u32 bytes() const { return rows4 ? 4 * map.count(0) * map.shared_element() : map.box_bytes(); }
    u32 row_bytes() const { return map.count(0) * map.shared_element(); }
    // From row to row in shared memory: a row shorter than the swizzle's span takes the span all the same.
    u32 pitch() const { return std::max(row_bytes(), swizzle_span(map.swizzle)); }
    // What the copy reports to its mbarrier; padding does not count (Triton's and CUTLASS's expect_tx).
    u32 data_bytes() const { return bytes() / map.shared_element() * map.element_bytes(); }
    u32 shared_bytes() const { return bytes() / row_bytes() * pitch(); }
};

// Reads the map at a generic address and the coordinates in units, one a coordinate; the modifiers are those of the
// instruction. Throws Fault for a map of another rank or one that the copy cannot use, and for coordinates that silicon
// does not take.
Box read_box(Warp& w, u64 map_address, const i32* coordinates, u32 lane, u32 mods);
// The same with im2col offsets, in the units behind those of the coordinates, where the copy has them.
Box read_loaded_box(Warp& w, u64 map_address, const i32* coordinates, u32 lane, u32 mods);
u32 coordinate_units(u32 mods);  // of read_loaded_box

// ptx/copies/tensormap_proxy.cpp: reports a map in global memory that was changed with no proxy fence since.
void check_tensor_map_fresh(Warp& w, u64 address);

// What the copy touches in shared memory at `offset`, and in global memory, out-of-bounds elements left out; a Fault
// when that lies in no allocation.
void touch_box_shared(Cta& cta, Warp& w, const Box& box, u32 offset, const Accessor& who);
// What a store takes of that: elements that it clips may be anything (a padded row, longer than the tensor's).
void touch_stored(Cta& cta, Warp& w, const Box& box, u32 offset, const Accessor& who);
void touch_box(Warp& w, const Box& box, const Accessor& who);

// Into shared memory at `offset`, out-of-bounds elements filled. `linear` is scratch.
void load_box(GlobalView& memory, const Box& box, Cta& cta, u32 offset, std::vector<u8>& linear);
// `tail`: that of the launch, where it is in its tail.
void store_box(GlobalView& memory, const Box& box, const std::vector<u8>& linear, Reduction reduction,
               Overlap* tail = nullptr);

// The unswizzled bytes of a box at `offset` in shared memory.
std::vector<u8> collect_box(const Box& box, const Cta& cta, u32 offset);

// The element type that a reduction through this map works on.
Ty reduced_type(const TensorMap& map, Reduction reduction);

}  // namespace ptxm
