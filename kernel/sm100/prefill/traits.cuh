// What a head_dim decides of the prefill kernel: tile shapes, the TMEM column map, the shared-memory map, the barriers.
//
// Plain C++17: a host compiler reads it too.
#pragma once

#include <stdint.h>

#include "fmha_launch.h"
#include "sm100/descriptors.cuh"
#include "sm100/operands.cuh"

namespace fmha {

template <int HeadDim>
struct PrefillTraits : Operands {
    static_assert(HeadDim == 64 || HeadDim == 128);

    static constexpr FmhaLaunchShape kShape = fmha_sm100_prefill_shape(HeadDim);
    static constexpr int kHeadDim = HeadDim;
    static constexpr int kQueryTiles = 2;  // in flight: A and B
    static constexpr int kTileRows = 128;  // of one: M of both products, a row a lane
    static constexpr int kRows = kShape.rows;
    static constexpr int kCtas = 1;  // of a cluster
    static constexpr int kRowTile = kRows;
    static constexpr int kKeys = kShape.keys;
    static constexpr int kStages = kShape.stages;
    static_assert(kRows == kQueryTiles * kTileRows);

    static constexpr int kHeadChunks = kHeadDim / kChunkElements;
    static constexpr int kPartChunks = kHeadChunks;

    // ---- TMEM, in columns of 32 bits; P packs two bf16 keys a column. There is one buffer of S, which A and B have in
    // turn: while the scores of one are read, the output of the other is multiplied. So their softmaxes never begin
    // together, and P, apart from S, orders nothing beyond itself. ----
    static constexpr int kTmemColumns = 512;
    static constexpr int kScoreColumns = kKeys;
    static constexpr int kProbabilityColumns = kKeys / 2;

    static constexpr int kTmemScore = 0;
    static constexpr int kTmemOutput = kTmemScore + kScoreColumns;
    static constexpr int kTmemProbability = kTmemOutput + kQueryTiles * kHeadDim;
    static constexpr int kTmemUsed = kTmemProbability + kQueryTiles * kProbabilityColumns;
    static_assert(kTmemUsed <= kTmemColumns, "TMEM map exceeds the allocation");

    // ---- Shared memory, in bytes from the aligned base. ----
    static constexpr int kQueryBytes = kRows * kHeadDim * kElementBytes;
    static constexpr int kKvTileBytes = kKeys * kHeadDim * kElementBytes;
    static constexpr int kPartBytes = kKvTileBytes;  // of a slot of the ring, which holds a whole tile here
    static constexpr int kFactorBytes = kRows * 4;   // from O as accumulated to O as stored

    static constexpr int kSmemQuery = 0;
    static constexpr int kSmemKv = kSmemQuery + kQueryBytes;
    static constexpr int kSmemFactor = kSmemKv + kStages * kKvTileBytes;
    static constexpr int kSmemBarriers = kSmemFactor + kFactorBytes;

    // ---- mbarriers, 8 bytes each; an array is consecutive barriers. ----
    static constexpr int kQueryFull = 0;
    static constexpr int kQueryEmpty = kQueryFull + 1;
    static constexpr int kKvFull = kQueryEmpty + 1;
    static constexpr int kKvEmpty = kKvFull + kStages;
    static constexpr int kScoreFull = kKvEmpty + kStages;
    static constexpr int kScoreEmpty = kScoreFull + kQueryTiles;
    static constexpr int kProbabilityFull = kScoreEmpty + kQueryTiles;
    static constexpr int kOutputFull = kProbabilityFull + kQueryTiles;
    static constexpr int kOutputEmpty = kOutputFull + kQueryTiles;
    static constexpr int kFactorFull = kOutputEmpty + kQueryTiles;
    static constexpr int kBarriers = kFactorFull + kQueryTiles;

    using Control = ControlWords<kSmemBarriers, kBarriers, kFmhaSm100PrefillControlBytes, kShape.shared_bytes>;
    static constexpr int kSmemTmemAddress = Control::kTmemAddress;
    static constexpr int kSmemEnd = Control::kEnd;
    static constexpr int kDynamicSharedBytes = Control::kDynamicSharedBytes;

    // ---- Operands, 128-byte swizzle: operands.cuh. A chunk of Q holds the rows of both query tiles. ----
    static constexpr int kRowChunkBytes = kRows * kChunkRowBytes;
    static constexpr int kQueryTileBytes = kTileRows * kChunkRowBytes;  // from A's rows of a chunk to B's
    static constexpr int kKeyChunkBytes = kKeys * kChunkRowBytes;
    static constexpr int kMnMajorLeadingBytes = kKeyChunkBytes;

    static constexpr uint32_t kScoreInstruction = instruction_descriptor(
        kTileRows, kKeys, Accumulator::kF32, Operand::kBf16, Operand::kBf16, Major::kK, Major::kK);
    static constexpr uint32_t kOutputInstruction = instruction_descriptor(
        kTileRows, kHeadDim, Accumulator::kF32, Operand::kBf16, Operand::kBf16, Major::kK, Major::kMn);
};

}  // namespace fmha
