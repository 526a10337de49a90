// The 128 bytes of a tensor map, as emulator/tensormap.py encodes them.
#pragma once

#include "machine.hpp"

namespace ptxm {

enum class Swizzle : u8 { none, b32, b64, b128, b128_atom32, b128_atom32_flip8, b128_atom64 };

struct TensorMap {
    u8 dtype = 0, rank = 0, interleave = 0, oob = 0, element_bits = 0;
    Swizzle swizzle = Swizzle::none;
    u64 address = 0;
    u64 global_dim[5] = {1, 1, 1, 1, 1};
    u64 stride[5] = {};  // bytes; [0] is the element size
    u32 box[5] = {1, 1, 1, 1, 1};
    u32 element_stride[5] = {1, 1, 1, 1, 1};

    u32 element_bytes() const { return element_bits / 8; }
    u32 box_bytes() const {
        u32 n = element_bytes();
        for (u32 d = 0; d < rank; ++d) n *= box[d];
        return n;
    }
};

// Throws Fault when the bytes are not a tensor map.
TensorMap decode_tensor_map(const u8* bytes);

// Where byte `address` of an unswizzled box lands: address bits are exchanged within the swizzle span (PTX ISA 5.5.7).
inline u32 swizzled(Swizzle mode, u32 address) {
    switch (mode) {
        case Swizzle::b32: return address ^ (address >> 7 & 1) << 4;
        case Swizzle::b64: return address ^ (address >> 7 & 3) << 4;
        case Swizzle::b128: return address ^ (address >> 7 & 7) << 4;
        default: return address;
    }
}

}  // namespace ptxm
