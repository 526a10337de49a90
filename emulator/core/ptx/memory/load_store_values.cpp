// The values of loads and stores, between registers and the bytes that each lane has been pointed at.
#include "machine/addresses.hpp"
#include "ptx/memory/generic_access.hpp"

namespace ptxm {
namespace {

bool sign_extends(Ty ty) { return ty == Ty::s8 || ty == Ty::s16 || ty == Ty::s32; }

// Vectors of 32-bit values, all lanes: whole vectors are moved, and their values dealt to the registers.
template <u32 kValues>
void load_vectors(Warp& w, const i32* d, u8* const (&pointers)[kLanes]) {
    alignas(64) u32 values[kLanes][kValues];
    for (u32 l = 0; l < kLanes; ++l) std::memcpy(values[l], pointers[l], sizeof values[l]);
    for (u32 k = 0; k < kValues; ++k) {
        if (d[k] < 0) continue;
        u32* to = w.reg<u32>(d[k]);
        for (u32 l = 0; l < kLanes; ++l) to[l] = values[l][k];
    }
}

template <u32 kValues>
void store_vectors(Warp& w, const i32* s, u8* const (&pointers)[kLanes]) {
    alignas(64) u32 values[kLanes][kValues], from[kValues][kLanes];
    for (u32 k = 0; k < kValues; ++k) std::memcpy(from[k], w.reg<u32>(s[k]), sizeof from[k]);
    for (u32 l = 0; l < kLanes; ++l)  // lane by lane: the loop becomes shuffles
        for (u32 k = 0; k < kValues; ++k) values[l][k] = from[k][l];
    for (u32 l = 0; l < kLanes; ++l) std::memcpy(pointers[l], values[l], sizeof values[l]);
}

template <class R>
void load_lanes(Warp& w, i32 unit, u8* const (&pointers)[kLanes], u32 mask, u32 offset, u32 bytes, bool sign) {
    R* d = w.reg<R>(unit);
    if (mask == kFullMask && bytes == sizeof(R)) {
        for (u32 l = 0; l < kLanes; ++l) std::memcpy(&d[l], pointers[l] + offset, sizeof(R));
        return;
    }
    for (u32 l = 0; l < kLanes; ++l) {
        if (!(mask >> l & 1)) continue;
        R value{};
        if (bytes >= sizeof(R)) {
            std::memcpy(&value, pointers[l] + offset, sizeof(R));
        } else {
            u64 raw = 0;
            std::memcpy(&raw, pointers[l] + offset, bytes);
            const u32 shift = 64 - 8 * bytes;
            value = static_cast<R>(sign ? static_cast<u64>(static_cast<i64>(raw << shift) >> shift) : raw);
        }
        d[l] = value;
    }
}

}  // namespace

void load_values(Warp& w, const Inst& i, u32 mask, u8* const (&pointers)[kLanes]) {
    const i32* o = w.ops(i);
    const Ty ty = static_cast<Ty>(i.type);
    const u32 bytes = element_bytes(ty);
    if (mask == kFullMask && bytes == 4 && i.width_dst == 32) {
        if (i.n_dst == 4) return load_vectors<4>(w, o, pointers);
        if (i.n_dst == 2) return load_vectors<2>(w, o, pointers);
    }
    for (u32 k = 0; k < i.n_dst; ++k) {
        if (o[k] < 0) continue;
        switch (i.width_dst) {
            case 16: load_lanes<u16>(w, o[k], pointers, mask, k * bytes, bytes, sign_extends(ty)); break;
            case 32: load_lanes<u32>(w, o[k], pointers, mask, k * bytes, bytes, sign_extends(ty)); break;
            case 64: load_lanes<u64>(w, o[k], pointers, mask, k * bytes, bytes, sign_extends(ty)); break;
            default: load_lanes<unsigned __int128>(w, o[k], pointers, mask, k * bytes, bytes, false); break;
        }
    }
}

namespace {

template <class R>
void store_lanes_to(u8* const (&pointers)[kLanes], u32 offset, const R* values) {
    for (u32 l = 0; l < kLanes; ++l) std::memcpy(pointers[l] + offset, &values[l], sizeof(R));
}

}  // namespace

// Sources: the address, then the values. width_dst is the address width, width_src the values'.
void store_values(Warp& w, const Inst& i, u32 mask, u8* const (&pointers)[kLanes]) {
    const i32* o = w.ops(i);
    const u32 bytes = element_bytes(static_cast<Ty>(i.type)), stride = i.width_src / 8;
    if (mask == kFullMask && bytes == 4 && stride == 4) {
        if (i.n_src == 5) return store_vectors<4>(w, o + 1, pointers);
        if (i.n_src == 3) return store_vectors<2>(w, o + 1, pointers);
    }
    for (u32 k = 0; k + 1u < i.n_src; ++k) {
        const u8* values = w.reg<u8>(o[1 + k]);
        if (mask == kFullMask && bytes == 4 && stride == 4) {
            store_lanes_to(pointers, k * bytes, w.reg<u32>(o[1 + k]));
            continue;
        }
        for (u32 l = 0; l < kLanes; ++l)
            if (mask >> l & 1) std::memcpy(pointers[l] + k * bytes, values + l * stride, bytes);
    }
}

}  // namespace ptxm
