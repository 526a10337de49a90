// The 128 bytes of a tensor map (PTX ISA 5.5).
#include "memory/tensor_map/tensor_map.hpp"

namespace ptxm {

namespace {

constexpr u8 kBits[] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};

void refuse_unmodelled(const TensorMap& t) {
    if (t.interleave) throw Fault("tensor-map", "interleaved tensor maps are not modelled");
    if (t.swizzle > Swizzle::b128_atom64) throw Fault("tensor-map", format("swizzle code %u", (unsigned)t.swizzle));
    if (t.rank < 1 || t.rank > 5) throw Fault("tensor-map", format("rank %u", t.rank));
}

// Sixteen packed 4-bit elements take eight bytes in global and in shared memory alike: it is a map of bytes.
void pack_nibbles(TensorMap& t) {
    t.element_bits = 8;
    t.global_dim[0] /= 2;
    t.box[0] /= 2;
}

// .b4x16_p64, .b6x16_p32: sixteen packed elements are one of 8 or 12 bytes, which takes 16 in shared memory; the rest
// of these stays uninitialised (PTX ISA 5.5.1.1.1).
void pad_sixteens(TensorMap& t) {
    t.element_bits = static_cast<u8>(16 * t.element_bits);
    t.padding = 16 - t.element_bytes();
    t.global_dim[0] /= 16;
    t.box[0] /= 16;
}

constexpr u16 kMagic = 0x4D54u;
constexpr u8 kIm2col = 0x80;  // of byte 63

// The fields of emulator/tensormap.py.
template <class T>
T field(const u8* bytes, u32 offset) {
    T value{};
    std::memcpy(&value, bytes + offset, sizeof value);
    return value;
}

i32 signed_field(u32 bits, u32 shift, u32 width) {
    return static_cast<i32>(bits << (32 - shift - width)) >> (32 - width);
}

void decode_im2col(const u8* b, TensorMap& t) {
    if (t.rank < 3) throw Fault("tensor-map", format("a map for im2col copies of rank %u", t.rank));
    t.im2col = true;
    t.box[0] = b[56] + 1u;
    t.box[1] = (b[63] & 0x7Fu) + ((b[61] & 7u) << 7) + 1u;
    const u32 spatial = t.rank - 2u, width = spatial == 1 ? 16 : spatial == 2 ? 8 : 5, corners = field<u32>(b, 57);
    for (u32 d = 0; d < spatial; ++d) {
        t.first_pixel[d] = signed_field(corners, d * width, width);
        t.last_pixel[d] =
            static_cast<i64>(t.global_dim[d + 1]) - 1 + signed_field(corners, (spatial + d) * width, width);
    }
    if (t.element_stride[t.rank - 1u] != 1)
        throw Fault("tensor-map", "a map for im2col copies with a stride of the last dimension is not modelled");
}

}  // namespace

bool holds_tensor_map(const u8* bytes) { return std::memcmp(bytes + 8, &kMagic, sizeof kMagic) == 0; }
bool holds_im2col_map(const u8* bytes) { return holds_tensor_map(bytes) && (bytes[63] & kIm2col); }
void begin_tensor_map(u8* bytes) { std::memcpy(bytes + 8, &kMagic, sizeof kMagic); }

TensorMap decode_tensor_map(const u8* b) {
    if (!holds_tensor_map(b)) throw Fault("tensor-map", "the descriptor address does not hold a tensor map");
    TensorMap t;
    t.dtype = b[10] & 0xF;
    t.oob = b[10] >> 4 & 1;
    t.interleave = b[10] >> 6;
    t.swizzle = static_cast<Swizzle>(b[11] & 7);
    t.rank = b[11] >> 3 & 7;
    t.element_bits = kBits[t.dtype];
    refuse_unmodelled(t);
    t.address = field<u64>(b, 0);
    for (u32 d = 0; d < t.rank; ++d) {
        if (!holds_im2col_map(b) && !(b[63] >> d & 1))
            throw Fault("tensor-map", format("box_dim %u of the map has not been set", d));
        t.global_dim[d] = u64{field<u32>(b, 16 + 4 * d)} + 1;
        if (!holds_im2col_map(b)) t.box[d] = b[56 + d] + 1u;
        t.element_stride[d] = (field<u16>(b, 61) >> 3 * d & 7) + 1u;
        if (d) t.stride[d] = field<u32>(b, 36 + 5 * (d - 1)) | u64{b[40 + 5 * (d - 1)]} << 32;
    }
    if (holds_im2col_map(b)) decode_im2col(b, t);
    if (t.dtype == d16u4_align8) pack_nibbles(t);
    if (t.dtype == d16u4_align16 || t.dtype == d16u6_align16) pad_sixteens(t);
    t.stride[0] = t.element_bytes();
    return t;
}

}  // namespace ptxm
