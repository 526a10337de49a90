// What the traits of all kernels here have in common: how operands lie in shared memory, and what stands at its end.
//
// Plain C++17: a host compiler reads it too.
#pragma once

#include <stdint.h>

#include "common/host_device.h"
#include "fmha_launch.h"

namespace fmha {

// bf16 under the 128-byte swizzle.
struct Operands {
    static constexpr int kElementBytes = 2;
    static constexpr int kMmaK = 16;  // K of one tcgen05.mma
    // A row of 64 bf16 elements is the 128 bytes that the swizzle permutes: a wider tile is several chunks in a row.
    static constexpr int kChunkElements = 64;
    static constexpr int kChunkRowBytes = 128;
    static constexpr int kStepsPerChunk = kChunkElements / kMmaK;
    // Q, K and P are K-major: head_dim (keys, for P) is contiguous, 8 rows of 128 bytes make one pattern. The leading
    // offset is unused.
    static constexpr int kKMajorStrideBytes = 1024;
    static constexpr int kKMajorStepBytes = kMmaK * kElementBytes;
    // V is MN-major over bytes laid out like K's: head_dim (N) is contiguous, a key (K) is a row of 128 bytes. The
    // stride goes to the next 8 keys, the leading offset, which the traits have, to the next chunk of head_dim.
    static constexpr int kMnMajorStrideBytes = 1024;
    static constexpr int kMnMajorStepBytes = kMmaK * kChunkRowBytes;

    // Where K step `k` of a K-major operand of `chunk_bytes` chunks starts.
    FMHA_HOST_DEVICE static constexpr int k_major_step(int k, int chunk_bytes) {
        return k / kStepsPerChunk * chunk_bytes + k % kStepsPerChunk * kKMajorStepBytes;
    }
};

// The last `Bytes` of a CTA's shared memory, from `Begin` on: mbarriers, 8 bytes each, and a word for the address of
// tensor memory. `Launch` is what fmha_launch.h says that a CTA has.
template <int Begin, int Barriers, int Bytes, int Launch>
struct ControlWords {
    static constexpr int kTmemAddress = Begin + 8 * Barriers;
    static constexpr int kEnd = Begin + Bytes;
    static_assert(kTmemAddress + 4 <= kEnd, "control words exceed their room");
    static constexpr int kDynamicSharedBytes = kFmhaSharedAlignment + kEnd;
    static_assert(kDynamicSharedBytes == Launch, "fmha_launch.h says another size");
    static_assert(kDynamicSharedBytes <= 232448, "more than the 227 KB a CTA may have");
};

}  // namespace fmha
