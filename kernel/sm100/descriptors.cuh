// The two descriptors that tcgen05.mma reads, built here and nowhere else.
//
// Bit tables: PTX ISA, "Shared memory descriptor" and "Instruction descriptor" of tcgen05. Plain C++17, so that a host
// compiler can test every field.
#pragma once

#include <stdint.h>

#include "common/host_device.h"

namespace fmha {

// Shared-memory matrix descriptor, bits 61-63.
enum class Swizzle : uint32_t {
    kNone = 0,
    k128BytesAtom32 = 1,
    k128Bytes = 2,
    k64Bytes = 4,
    k32Bytes = 6,
};

// Which dimension of an operand is contiguous in shared memory.
enum class Major : uint32_t { kK = 0, kMn = 1 };

// Instruction descriptor, kind::f16: codes of the accumulator and of the operands.
enum class Accumulator : uint32_t { kF16 = 0, kF32 = 1 };
enum class Operand : uint32_t { kF16 = 0, kBf16 = 1 };

// 64 bits: start address, leading-dimension and stride-dimension byte offsets (all in 16-byte units), then swizzle.
// `address` is in the shared window and aligned to the swizzle pattern, so that the base offset (bits 49-51) is zero.
FMHA_HOST_DEVICE constexpr uint64_t smem_descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes,
                                                    Swizzle swizzle) {
    constexpr uint64_t kSm100 = 1;                          // bits 46-48
    return uint64_t((address >> 4) & 0x3fff) |              //
           uint64_t((leading_bytes >> 4) & 0x3fff) << 16 |  //
           uint64_t((stride_bytes >> 4) & 0x3fff) << 32 |   //
           kSm100 << 46 |                                   //
           uint64_t(swizzle) << 61;
}

// The same matrix `bytes` further on. Only the low word changes: shared memory ends below 2^18 bytes, so the start
// address never carries out of its 14 bits.
FMHA_HOST_DEVICE constexpr uint64_t advance_descriptor(uint64_t descriptor, uint32_t bytes) {
    const uint32_t low = uint32_t(descriptor) + (bytes >> 4);
    return (descriptor & 0xffffffff00000000ull) | low;
}

// The upper word of a descriptor under the 128-byte swizzle, which says nothing of where the matrix is.
FMHA_HOST_DEVICE constexpr uint32_t upper_word(uint32_t leading_bytes, uint32_t stride_bytes) {
    return smem_descriptor(0, leading_bytes, stride_bytes, Swizzle::k128Bytes) >> 32;
}

// 32 bits for kind::f16, dense, neither operand negated. `m` and `n` are the shape of the accumulator.
FMHA_HOST_DEVICE constexpr uint32_t instruction_descriptor(uint32_t m, uint32_t n, Accumulator d, Operand a, Operand b,
                                                           Major a_major, Major b_major) {
    return uint32_t(d) << 4 |         //
           uint32_t(a) << 7 |         //
           uint32_t(b) << 10 |        //
           uint32_t(a_major) << 15 |  //
           uint32_t(b_major) << 16 |  //
           (n >> 3) << 17 |           //
           (m >> 4) << 24;
}

}  // namespace fmha
