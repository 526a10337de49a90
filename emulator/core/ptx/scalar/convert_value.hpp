// One value from one format to another: what all forms of cvt share.
#pragma once

#include "machine/warp/warp.hpp"
#include "numbers/formats.hpp"

namespace ptxm {

inline u64 read_lane(Warp& w, i32 unit, u32 width, u32 lane) {
    switch (width) {
        case 16: return w.reg<u16>(unit)[lane];
        case 32: return w.reg<u32>(unit)[lane];
        default: return w.reg<u64>(unit)[lane];
    }
}

inline void write_lane(Warp& w, i32 unit, u32 width, u32 lane, u64 value) {
    switch (width) {
        case 16: w.reg<u16>(unit)[lane] = static_cast<u16>(value); break;
        case 32: w.reg<u32>(unit)[lane] = static_cast<u32>(value); break;
        default: w.reg<u64>(unit)[lane] = value; break;
    }
}

const FloatFormat* format_of(Ty ty);  // of one element; null for integers
inline Rounding rounding_of(u32 mods) { return mods & kRna ? Rounding::nearest_away : static_cast<Rounding>(mods & 3); }
double round_to_integral(double x, u32 mode);
// Every source format fits a double exactly.
double to_double(const FloatFormat& f, u64 bits);
// .sat: to [0, 1], NaN to +0.
u64 saturate_bits(const FloatFormat& f, u64 bits);
// Under the modifiers of cvt. An f32 that .ftz flushes keeps its sign.
u64 convert_value(const FloatFormat& source, const FloatFormat& destination, u64 bits, u32 mods);

}  // namespace ptxm
