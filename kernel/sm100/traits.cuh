// What a head_dim decides: tile shapes, the TMEM column map, the shared-memory map, the barriers.
//
// Plain C++17 apart from the descriptors' macro: a host compiler reads it too.
#pragma once

#include <stdint.h>

#include "descriptors.cuh"
#include "fmha_launch.h"

namespace fmha {

template <int HeadDim>
struct FmhaTraits {
    // 64 elements of bf16 are one 128-byte row of the swizzle. A wider head needs several chunks a tile, and TMA boxes
    // and descriptor steps to match.
    static_assert(HeadDim == 64, "only head_dim 64 is implemented");

    static constexpr int kHeadDim = HeadDim;
    static constexpr FmhaLaunchShape kShape = fmha_sm100_shape(HeadDim, false);
    static constexpr int kRows = kShape.rows;
    static constexpr int kKeys = kShape.keys;
    static constexpr int kStages = kShape.stages / 2;  // of each of the rings of K and of V
    static constexpr int kBuffers = 2;  // of S and of P in TMEM

    static constexpr int kElementBytes = 2;  // bf16
    static constexpr int kMmaK = 16;         // K of one tcgen05.mma, bf16

    // ---- TMEM, in columns of 32 bits. P packs two bf16 keys a column. ----
    static constexpr int kTmemColumns = 512;  // allocated: a power of two
    static constexpr int kScoreColumns = kKeys;
    static constexpr int kOutputColumns = kHeadDim;
    static constexpr int kProbabilityColumns = kKeys / 2;

    static constexpr int kTmemScore = 0;
    static constexpr int kTmemOutput = kTmemScore + kBuffers * kScoreColumns;
    static constexpr int kTmemProbability = kTmemOutput + kOutputColumns;
    static constexpr int kTmemUsed = kTmemProbability + kBuffers * kProbabilityColumns;
    static_assert(kTmemUsed <= kTmemColumns, "TMEM map exceeds the allocation");

    // ---- Shared memory, in bytes from the aligned base. ----
    static constexpr int kQueryBytes = kRows * kHeadDim * kElementBytes;
    static constexpr int kKvTileBytes = kKeys * kHeadDim * kElementBytes;

    static constexpr int kSmemQuery = 0;
    static constexpr int kSmemKey = kSmemQuery + kQueryBytes;
    static constexpr int kSmemValue = kSmemKey + kStages * kKvTileBytes;
    static constexpr int kSmemBarriers = kSmemValue + kStages * kKvTileBytes;

    // ---- mbarriers, 8 bytes each. A ring of two is two consecutive barriers. ----
    static constexpr int kQueryFull = 0;
    static constexpr int kKeyFull = kQueryFull + 1;
    static constexpr int kKeyEmpty = kKeyFull + kStages;
    static constexpr int kValueFull = kKeyEmpty + kStages;
    static constexpr int kValueEmpty = kValueFull + kStages;
    static constexpr int kScoreFull = kValueEmpty + kStages;
    static constexpr int kProbabilityFull = kScoreFull + kBuffers;
    static constexpr int kOutputFull = kProbabilityFull + kBuffers;
    static constexpr int kBarriers = kOutputFull + 1;

    static constexpr int kSmemTmemAddress = kSmemBarriers + 8 * kBarriers;
    static constexpr int kSmemEnd = kSmemBarriers + kFmhaSharedControlBytes;
    static_assert(kSmemTmemAddress + 4 <= kSmemEnd, "control words exceed their room");
    static_assert(kSmemKey % kFmhaSharedAlignment == 0 && kSmemValue % kFmhaSharedAlignment == 0 &&
                      kKvTileBytes % kFmhaSharedAlignment == 0,
                  "a tile must start where the swizzle pattern starts");

    static constexpr int kDynamicSharedBytes = kFmhaSharedAlignment + kSmemEnd;
    static_assert(kDynamicSharedBytes == kShape.shared_bytes, "fmha_launch.h says another size");
    static_assert(kDynamicSharedBytes <= 232448, "more than the 227 KB a CTA may have");

    // ---- Operands, 128-byte swizzle. ----
    // Q and K are K-major: head_dim is contiguous, 8 rows of 128 bytes make one pattern. The leading offset is unused.
    static constexpr int kKMajorStrideBytes = 1024;
    static constexpr int kKMajorStepBytes = kMmaK * kElementBytes;
    // V is MN-major over bytes laid out alike: head_dim (N) is contiguous, a key (K) is a row of 128 bytes. The stride
    // goes to the next 8 keys, the leading offset to the next 64 elements of head_dim.
    static constexpr int kMnMajorStrideBytes = 1024;
    static constexpr int kMnMajorLeadingBytes = kKeys * 128;
    static constexpr int kMnMajorStepBytes = kMmaK * 128;

    static constexpr uint32_t kScoreInstruction = instruction_descriptor(
        kRows, kKeys, Accumulator::kF32, Operand::kBf16, Operand::kBf16, Major::kK, Major::kK);
    static constexpr uint32_t kOutputInstruction = instruction_descriptor(
        kRows, kHeadDim, Accumulator::kF32, Operand::kBf16, Operand::kBf16, Major::kK, Major::kMn);
};

}  // namespace fmha
