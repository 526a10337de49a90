// What the two halves of cvt share.
#pragma once

#include "machine/machine.hpp"
#include "numbers/formats.hpp"

namespace ptxm {

u64 read_lane(Warp& w, i32 unit, u32 width, u32 lane);
void write_lane(Warp& w, i32 unit, u32 width, u32 lane, u64 value);
const FloatFormat* format_of(Ty ty);  // of one element; null for integers
Rounding rounding_of(u32 mods);
u64 convert_value(const FloatFormat& source, const FloatFormat& destination, u64 bits, u32 mods);
Handler bind_convert_packed(const InstRecord& r);

}  // namespace ptxm
