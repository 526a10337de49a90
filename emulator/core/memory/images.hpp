// Texture and surface objects: what a handle stands for (CUDA C++ programming guide, texture and surface memory).
#pragma once

#include <array>
#include <map>

#include "isa/program.hpp"

namespace ptxm {

enum class Texel : u8 { u8_, s8, u16_, s16, f16, u32_, s32, f32 };
enum class Addressing : u8 { wrap, clamp, mirror, border };  // as cudaTextureAddressMode numbers them

constexpr u32 kMostChannels = 4, kMostDimensions = 3;

// As emulator/texture_objects.py lays it out.
struct Image {
    u64 address = 0;
    u64 pitch = 0, plane = 0;                        // bytes from a row to the next; from a plane or a layer
    std::array<u32, kMostDimensions> size{1, 1, 1};  // in elements
    u32 layers = 0;                                  // 0: it is not layered
    std::array<float, kMostChannels> border{};
    u8 dimensions = 1;  // without the layers
    u8 channels = 1;
    Texel texel = Texel::f32;
    bool linear = false;      // linear memory, which whole numbers alone reach (tex1Dfetch)
    bool surface = false;     // and no texture: what follows is a texture's
    bool filtered = false;    // linear filtering, in place of the nearest element
    bool normalized = false;  // coordinates from 0 to 1
    bool scaled = false;      // integers are read as fractions of the largest one
    std::array<Addressing, kMostDimensions> addressing{Addressing::clamp, Addressing::clamp, Addressing::clamp};
    u8 pad[5] = {};
};
static_assert(sizeof(Image) == 72);

inline u32 texel_bytes(Texel t) { return t <= Texel::s8 ? 1 : t <= Texel::f16 ? 2 : 4; }
inline u32 element_bytes_of(const Image& m) { return texel_bytes(m.texel) * m.channels; }

class Images {
public:
    // A handle that no number of another kind is mistaken for: no address, and not small.
    u64 add(const Image& image);
    // Null where there is no such object, or it has been destroyed.
    const Image* find(u64 handle) const;
    bool drop(u64 handle);

private:
    static constexpr u64 kStep = 64;
    u64 next_ = 0x0000'0600'0000'0000ull;
    std::map<u64, Image> images_;
};

}  // namespace ptxm
