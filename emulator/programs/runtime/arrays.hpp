// CUDA arrays: elements that textures and surfaces read. Their rows lie one behind the other in memory of the device.
#pragma once

#include "cuda_copy.hpp"

namespace fmha {

struct Array {
    ChannelFormat format;
    std::size_t width = 0, height = 0, depth = 0;  // depth: of a layered one, its layers
    unsigned flags = 0;
    Address address = 0;

    unsigned channels() const { return (format.x > 0) + (format.y > 0) + (format.z > 0) + (format.w > 0); }
    std::size_t element_bytes() const { return static_cast<std::size_t>(format.x) / 8 * channels(); }
    std::size_t pitch() const { return width * element_bytes(); }
    std::size_t plane() const { return pitch() * (height ? height : 1); }
    bool layered() const { return flags & 1; }
    bool for_surfaces() const { return flags & 2; }
};

// Null where the handle is none.
const Array* array_of(const void* handle);
// Where a box begins in an array; x is in bytes. kInvalidValue where it does not lie in it.
Status within(const void* handle, std::size_t x, std::size_t y, std::size_t z, const Box& box, Side& out);
// What the emulator calls the elements of a format, by number; -1 for formats that it does not have.
int texel_of(const ChannelFormat& format);
// The same format by the driver's number of its type, CUarray_format.
bool format_of(int driver_format, unsigned channels, ChannelFormat& out);
void forget_arrays();  // cudaDeviceReset

}  // namespace fmha
