// What a head_dim and the path of P decide: tile shapes, the TMEM column map, the shared-memory map, the barriers.
//
// Plain C++17: a host compiler reads it too.
#pragma once

#include <stdint.h>

#include "descriptors.cuh"
#include "fmha_launch.h"
#include "operands.cuh"

namespace fmha {

// Byte of the 16-byte vector `vector` of row `row` in a tile of 128-byte rows under the 128-byte swizzle.
FMHA_HOST_DEVICE constexpr uint32_t swizzled_vector(uint32_t row, uint32_t vector) {
    return row * 128 + ((vector ^ (row % 8)) << 4);
}

// `Rows` is what a variant of fewer query rows than its head_dim's own asks for, 0 for these.
template <int HeadDim, bool PInShared, int Rows = 0>
struct FmhaTraits : Operands {
    static_assert(HeadDim == 64 || HeadDim == 128 || HeadDim == 256 || HeadDim == 512);

    static constexpr FmhaLaunchShape kShape = fmha_sm100_shape(HeadDim, PInShared, Rows);
    static constexpr int kCtasPerSm = fmha_sm100_ctas_per_sm(HeadDim, Rows);
    static constexpr int kHeadDim = HeadDim;
    // The kernel that the guard runs first. Its code stays what it was when it was proven.
    static constexpr bool kProven = HeadDim == 64 && Rows == 0;
    static constexpr bool kPInShared = PInShared;
    static constexpr int kRows = kShape.rows;
    static constexpr int kKeys = kShape.keys;
    static constexpr int kStages = kShape.stages;
    static constexpr int kBuffers = 2;  // of S and of P

    static constexpr int kHeadChunks = kHeadDim / kChunkElements;

    // ---- Lanes. M = 128: lane = row. M = 64, weight-stationary: row r is in lanes r and r + 64, which hold the first
    // and the second half of an accumulator's columns, both from the same column of TMEM on. M = 32 likewise: in lanes
    // r, r + 32, r + 64 and r + 96, a quarter of the columns each. ----
    static constexpr int kSoftmaxThreads = 128;
    static constexpr bool kWeightStationary = kRows < 128;
    static constexpr int kThreadsPerRow = kSoftmaxThreads / kRows;
    static_assert(kThreadsPerRow <= 2 || PInShared, "of P in TMEM a thread stores its own half and one other");
    static constexpr int kThreadKeys = kKeys / kThreadsPerRow;
    static constexpr int kThreadElements = kHeadDim / kThreadsPerRow;  // of O

    // O is one accumulator, or two where N would exceed the 256 of one instruction.
    static constexpr int kOutputN = kHeadDim < 256 ? kHeadDim : 256;
    static constexpr int kOutputParts = kHeadDim / kOutputN;
    static constexpr int kPartColumns = kOutputN / kThreadsPerRow;
    // A tile of K or V comes in as many parts, each with a slot of the ring: K's part is given back while the next one
    // is multiplied, and V's is what one accumulator needs.
    static constexpr int kPartChunks = kHeadChunks / kOutputParts;
    static constexpr int kSlots = kStages * kOutputParts;

    // The element of O in column `column` of O's columns, for share `share` of the lanes.
    FMHA_HOST_DEVICE static constexpr int output_element(int column, int share) {
        return column / kPartColumns * kOutputN + share * kPartColumns + column % kPartColumns;
    }

    // ---- TMEM, in columns of 32 bits. P packs two bf16 keys a column. ----
    static constexpr int kScoreColumns = kThreadKeys;
    static constexpr int kOutputColumns = kThreadElements;
    // O is rescaled and stored by as many columns at a time: a whole row would not fit the registers.
    static constexpr int kOutputChunk = kOutputColumns < 64 ? kOutputColumns : 64;
    static constexpr int kProbabilityColumns = PInShared ? 0 : kKeys / 2;

    static constexpr int kTmemScore = 0;
    static constexpr int kTmemOutput = kTmemScore + kBuffers * kScoreColumns;
    static constexpr int kTmemProbability = kTmemOutput + kOutputColumns;
    static constexpr int kTmemUsed = kTmemProbability + kBuffers * kProbabilityColumns;
    static constexpr int kTmemColumns = kTmemUsed > 256 ? 512 : kTmemUsed > 128 ? 256 : 128;  // allocated
    static_assert(kTmemUsed <= kTmemColumns && kCtasPerSm * kTmemColumns <= 512, "TMEM map exceeds the allocation");

    // ---- Shared memory, in bytes from the aligned base. ----
    static constexpr int kQueryBytes = kRows * kHeadDim * kElementBytes;
    static constexpr int kKvTileBytes = kKeys * kHeadDim * kElementBytes;
    static constexpr int kProbabilityBytes = PInShared ? kRows * kKeys * kElementBytes : 0;
    static constexpr int kExchangeBytes = fmha_sm100_exchange_bytes(kRows, PInShared);

    static constexpr int kSmemQuery = 0;
    static constexpr int kSmemKv = kSmemQuery + kQueryBytes;
    static constexpr int kSmemProbability = kSmemKv + kStages * kKvTileBytes;
    static constexpr int kSmemExchange = kSmemProbability + kBuffers * kProbabilityBytes;
    static constexpr int kSmemBarriers = kSmemExchange + kExchangeBytes;

    // ---- mbarriers, 8 bytes each; an array is consecutive barriers. ----
    static constexpr int kQueryFull = 0;
    static constexpr int kKvFull = kQueryFull + 1;
    static constexpr int kKvEmpty = kKvFull + kSlots;
    static constexpr int kScoreFull = kKvEmpty + kSlots;
    static constexpr int kProbabilityFull = kScoreFull + kBuffers;
    static constexpr int kOutputFull = kProbabilityFull + kBuffers;
    static constexpr int kKvTail = kOutputFull + 1;
    static constexpr int kBarriers = kKvTail + 1;

    using Control = ControlWords<kSmemBarriers, kBarriers, kFmhaSharedControlBytes, kShape.shared_bytes>;
    static constexpr int kSmemTmemAddress = Control::kTmemAddress;
    static constexpr int kSmemEnd = Control::kEnd;
    static constexpr int kDynamicSharedBytes = Control::kDynamicSharedBytes;
    static_assert(kQueryBytes % kFmhaSharedAlignment == 0 && kKvTileBytes % kFmhaSharedAlignment == 0 &&
                      kProbabilityBytes % kFmhaSharedAlignment == 0,
                  "a tile must start where the swizzle pattern starts");
    static_assert(kCtasPerSm * (kDynamicSharedBytes + 1024) <= 233472, "more than the 228 KB an SM has");

    // ---- Operands, 128-byte swizzle: operands.cuh. ----
    static constexpr int kRowChunkBytes = kRows * kChunkRowBytes;  // of Q and P
    static constexpr int kKeyChunkBytes = kKeys * kChunkRowBytes;  // of K and V
    static constexpr int kMnMajorLeadingBytes = kKeyChunkBytes;
    static constexpr int kPartBytes = kPartChunks * kKeyChunkBytes;

    static constexpr uint32_t kScoreInstruction =
        instruction_descriptor(kRows, kKeys, Accumulator::kF32, Operand::kBf16, Operand::kBf16, Major::kK, Major::kK);
    static constexpr uint32_t kOutputInstruction = instruction_descriptor(
        kRows, kOutputN, Accumulator::kF32, Operand::kBf16, Operand::kBf16, Major::kK, Major::kMn);
};

}  // namespace fmha
