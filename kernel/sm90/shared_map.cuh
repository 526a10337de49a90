// Addresses in the CTA's shared memory, named; places in a ring; the descriptors of what wgmma reads there.
#pragma once

#include <stdint.h>

#include "traits.cuh"

namespace fmha::sm90 {

// Shared-memory matrix descriptor, 128-byte swizzle (PTX ISA, "Matrix Descriptor Format" of wgmma): 8 rows of 128
// bytes make one pattern, the stride; `leading_bytes` leads to the next 64 elements of an MN-major operand.
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading_bytes) {
    constexpr uint64_t kSwizzle128 = 1;
    constexpr uint64_t kStride = 1024 >> 4;
    return uint64_t((address & 0x3ffff) >> 4) | uint64_t(leading_bytes >> 4) << 16 | kStride << 32 | kSwizzle128 << 62;
}

// Addresses in the shared window, named.
template <class T>
struct SharedMap {
    uint32_t base;

    __device__ uint32_t query(int box) const { return base + T::kSmemQuery + box * T::kQueryBoxBytes; }
    __device__ uint32_t slot(int index) const { return base + T::kSmemRing + index * T::kUnitBytes; }
    __device__ uint32_t probability(int vector, int thread) const {
        return base + T::kSmemProbability + (vector * 256 + thread) * 16;
    }
    __device__ uint32_t anchors(int thread) const { return base + T::kSmemAnchors + thread / 4 * 16; }

    __device__ uint32_t query_full() const { return barrier(T::template kFirst<Barrier::kQueryFull>); }
    __device__ uint32_t query_empty() const { return barrier(T::template kFirst<Barrier::kQueryEmpty>); }
    __device__ uint32_t full(int slot) const { return barrier(T::template kFirst<Barrier::kFull> + slot); }
    __device__ uint32_t empty(int slot) const { return barrier(T::template kFirst<Barrier::kEmpty> + slot); }
    __device__ uint32_t tail(int unit, int set = 0) const {
        return barrier(T::template kFirst<Barrier::kTail> + set * T::kUnits + unit);
    }
    __device__ uint32_t tail_word(int set) const { return base + T::kSmemTails + 4 * set; }
    __device__ uint32_t handed(int column_group) const {
        return barrier(T::template kFirst<Barrier::kHanded> + column_group);
    }
    __device__ uint32_t taken(int column_group) const {
        return barrier(T::template kFirst<Barrier::kTaken> + column_group);
    }
    __device__ uint32_t told() const { return barrier(T::template kFirst<Barrier::kTold>); }
    __device__ uint32_t place(int turn) const { return base + T::kSmemPlaces + 32 * (unsigned(turn) % T::kPlaces); }
    __device__ uint32_t next_full() const { return barrier(T::template kFirst<Barrier::kNextFull>); }
    __device__ uint32_t next_free() const { return barrier(T::template kFirst<Barrier::kNextFree>); }
    __device__ uint32_t barrier(int index) const { return base + T::kSmemBarriers + 8 * index; }
};

// A place in a ring: the slot, and the parity of the phase that its next filling completes.
template <class T>
struct Cursor {
    int slot;
    int end;  // of the ring
    uint32_t parity = 0;

    __device__ Cursor(int ring = 0) : slot(ring * T::kRingSlots), end(slot + T::kRingSlots) {}

    __device__ void advance(int units = 1) {
        slot += units;
        if (slot >= end) {
            slot -= T::kRingSlots;
            parity ^= 1;
        }
    }
};

}  // namespace fmha::sm90
